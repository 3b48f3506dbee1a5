# Owns: what zsh offers where the tab key is pressed: zsh -f zsh_offers.zsh FOLDER LINE. FOLDER holds _fsdpc.
zmodload zsh/zpty
offers= more=
zpty shell zsh -f -i
zpty -w shell "stty columns 300; PS1=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=0
ready() { print RE\"\"ADY }; zle -N zle-line-init ready; offered() { print DO\"\"NE }; zle -N offered; bindkey '^I' list-choices '^X' offered"
while zpty -r shell more && [[ $more != *READY* ]]; do :; done
zpty -w -n shell "$2"$'\t\C-x'
while [[ $offers != *DONE* ]] && zpty -r shell more; do offers+=$more; done
print -r -- "$offers"
zpty -d shell
