#!/usr/bin/env bash
# Owns: tests of completion, each in its own shell: bash, zsh and fish.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mkdir words made
cd words || exit
touch out

# After an option, its short form, and an equals sign, which bash takes for a word.
expect 0 completions bash
# shellcheck disable=SC1091
source out
completes() {
  local want=$1 COMP_WORDS=(fsdpc "${@:2}") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _fsdpc
  [[ " ${COMPREPLY[*]} " == *" $want "* ]] || fail "bash completes ${*:2} with: ${COMPREPLY[*]}"
}
completes explain expl && completes --memory plan --mem && completes out check ou
for command in $("$fsdpc" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do completes --color "$command" --col; done
COMP_WORDS=(fsdpc explain --why o) COMP_CWORD=3 COMPREPLY=()
_fsdpc || true # nothing to offer
[ ${#COMPREPLY[@]} = 0 ] || fail "files offered for a name: ${COMPREPLY[*]}"
completes plan pl && completes --strategy plan --str && completes full_shard plan --strategy fu && completes full_shard plan --strategy = fu
completes gradients plan --offload '' && completes cuda run --backend '' && completes torch export --to '' && completes bf16 export --dtype b
completes auto run --resume '' && completes out run --resume '' && completes out plan -o '' && completes fish completions ''
# Each word of a comma list.
completes parameters,optimizer plan --offload parameters,op && completes parameters,gradients,optimizer tune --offload = parameters,gradients,o
completes graph,memory plan --dump graph,m
# Clusters by their names, beside files.
completes dgx-h100 plan --cluster dg && completes out plan --cluster o

# offers LINE WANT...: what is offered after LINE; -WANT: what is not.
offers() {
  local line=$1 want
  offered "$line" >answer
  grep -qE 'command not found|unmatched|rror' answer && cat answer >&2 && fail "$shell cannot complete $line"
  for want in "${@:2}"; do
    if [ "${want#-}" = "$want" ]; then
      grep -qE -- "(^|[[:space:]])(--)?$want([[:space:]]|\$)" answer || { cat answer >&2 && fail "$shell completes $line without $want"; }
    else
      grep -qE -- "(^|[[:space:]])-?$want([[:space:]]|\$)" answer && cat answer >&2 && fail "$shell completes $line with $want"
    fi
  done
  return 0
}
# What both others offer.
other_shell() {
  shell=$1
  command -v "$shell" >/dev/null || { printf '%s is not there: not tried\n' "$shell" && return; }
  offers 'fsdpc pl' plan -run
  offers 'fsdpc plan --stra' strategy
  offers 'fsdpc plan --strategy ' full_shard hybrid_shard:
  offers 'fsdpc plan --strategy=fu' '([^ ]*=)?full_shard'
  offers 'fsdpc plan -o ' out
  offers 'fsdpc plan --cluster dgx-h' dgx-h100 dgx-h200 -out
  offers 'fsdpc plan --cluster ou' out
  offers 'fsdpc run --resume ' auto out
  offers 'fsdpc plan --offload ' auto parameters optimizer
  offers 'fsdpc plan --offload parameters,gradients,' '([^ ]*,)?optimizer' -none -out
  offers 'fsdpc plan --offload=parameters,' '([^ ]*[,=])?activations' -none
  offers 'fsdpc plan --dump graph,' '([^ ]*,)?memory'
  offers 'fsdpc run out --data a --da' data
  offers 'fsdpc completions ' zsh fish -out
  offers 'fsdpc verify plan --' json -wrap
  for command in check fmt plan predict explain verify diff draw tune profile run generate import export doctor completions man lsp; do
    offers "fsdpc $command out --colo" color
  done
}

"$fsdpc" completions zsh >../made/_fsdpc
"$fsdpc" completions fish >../made/fsdpc.fish
offered() { timeout 60 zsh -f "$root/tests/cli/zsh_offers.zsh" "$PWD/../made" "$1" | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g; s/\r/\n/g' | grep -v "^fsdpc"; }
other_shell zsh
# What is given is not offered again, unless it can be repeated.
if command -v zsh >/dev/null; then offers 'fsdpc plan --json -o a --' set -json -output; fi
offered() { HOME=$PWD timeout 60 fish --no-config -c 'source ../made/fsdpc.fish; complete -C $argv[1]' "$1"; }
other_shell fish
