#!/usr/bin/env bash
# Owns: odd surroundings: standard streams that are closed or take no more, pipes where files belong, files that are replaced while
# the disk fills up or a signal comes, names that are long or no UTF-8, weights that are no numbers, times that no step has, data that
# cannot be read, two commands that write to one folder, metrics that nobody takes any more, stacks that are small.
source "$(dirname "$0")/lib.sh"
model=$fixtures/gpt-tiny.fsdp data=$fixtures/tokens.bin
run=("$fsdpc" run "$model" --ranks 2 --steps 2 --data "$data" --threads 1)
# code COMMAND...: its exit code in $code, within two minutes: nothing here takes long, and a hang ends.
code() {
  code=0
  timeout 120 "$@" || code=$?
}
only_records() { ! grep -v '^{' "$1" || fail "$1 holds what was printed"; }

expect 0 plan "$model" --ranks 1 -o one.plan

# --- a closed stream is not the next file that is opened, and a result that is not printed is a failure
code "${run[@]}" --metrics metrics.jsonl --save closed 2>&- >out
[ "$code" = 0 ] || fail "exit code $code with standard error closed"
only_records metrics.jsonl
code "${run[@]}" --metrics metrics.jsonl >&- 2>err
[ "$code" = 1 ] || fail "exit code $code with standard output closed"
said err 'cannot write to standard output: Bad file descriptor'
only_records metrics.jsonl
code "${run[@]}" --metrics metrics.jsonl --save none <&- >&- 2>&-
[ "$code" = 1 ] || fail "exit code $code with all streams closed"
only_records metrics.jsonl
"$compare" weights none/model.safetensors closed/model.safetensors
code "${run[@]}" --quiet >&- 2>err
[ "$code" = 0 ] || fail "exit code $code where nothing is to be printed"
for more in --gemm=builtin --analyze; do
  code "${run[@]}" "$more" >/dev/full 2>err
  [ "$code" = 1 ] || fail "exit code $code on a full disk with $more"
  said err 'cannot write to standard output: No space left on device; free some space there'
done

code "$fsdpc" generate "$model" --weights closed --prompt '!' --tokens 4 >/dev/full 2>err
[ "$code" = 1 ] || fail "exit code $code of a text on a full disk"
[ "$(grep -c . err)" = 1 ] || { cat err >&2 && fail 'not one message'; }
said err 'cannot write to standard output: No space left on device; free some space there'
for command in help 'explain one.plan' 'completions zsh' "tune $model --wrap block --checkpoint none --strategy full_shard --memory 64MiB"; do
  # shellcheck disable=SC2086
  code "$fsdpc" $command >/dev/full 2>err
  [ "$code" = 1 ] || fail "exit code $code of $command on a full disk"
  said err 'cannot write to standard output: No space left on device; free some space there'
done

code "$fsdpc" draw one.plan --dot /dev/stdout >&- 2>err
[ "$code" = 1 ] || fail "exit code $code of a picture for standard output, which is closed"
said err 'cannot write /dev/stdout: '
code "$fsdpc" draw one.plan --dot /dev/stderr 2>&-
[ "$code" = 1 ] || fail "exit code $code of a picture for standard error, which is closed"

# --- who reads the results may stop, and files are written all the same: a pipe without a reader
mkfifo unread
exec 6<>unread && exec 5>unread 6<&-
unread() {
  code=0
  env --default-signal=PIPE "$fsdpc" "$@" >&5 2>err || code=$?
  [ "$code" = 141 ] || { cat err >&2 && fail "fsdpc $*: exit code $code where nobody reads"; }
}
unread plan "$model" --ranks 2 --dump plan -o kept.plan
expect 0 verify kept.plan
unread plan "$root/models/llama3-8b.fsdp" --ranks 8 --executor pytorch-fsdp2-compiled --json -o kept.fsdp
expect 0 check kept.fsdp
unread tune "$model" --ranks 1,2 --strategy full_shard --json --csv kept.csv
[ -s kept.csv ] || fail 'a sweep is lost'
exec 5>&- && rm unread
sed 's/^  */ /' "$model" >loose.fsdp
code=0
(ulimit -f 1 && exec "$fsdpc" fmt loose.fsdp) >out 2>err || code=$?
[ "$code" = 1 ] || fail "exit code $code of fmt where files cannot grow"
silent out

code "$fsdpc" plan "$model" --ranks 2 --dump plan -o /dev/stdout >once 2>said
cmp kept.plan once && cmp kept.plan said || fail 'a plan that is written to standard output does not stand there alone'

code "${run[@]}" --metrics /dev/stdout >lines 2>err
grep -v '^{' lines >printed || true
grep -q '^{"reason":"start"' lines && [ "$(wc -l <printed)" = 1 ] || { cat lines >&2 && fail 'metrics are written over'; }

# --- a file is replaced whole or not at all, also through a link, and when the disk is full or a signal comes
mkdir linked && ln -s linked/file link
cp one.plan linked/file
code=0
(ulimit -f 1 && exec "$fsdpc" plan "$model" --ranks 2 -o link) >out 2>err || code=$?
[ "$code" = 1 ] || fail "exit code $code where files cannot grow"
said err 'cannot write link: File too large; raise the limit of file sizes (ulimit -f)'
cmp one.plan linked/file || fail 'what a link led to is lost'
silent out
code=0
cp "$(dirname "$compare")/interrupt.so" . # blanks in a path would end it
LD_PRELOAD=./interrupt.so ASAN_OPTIONS=verify_asan_link_order=0 \
  "$fsdpc" plan "$model" --ranks 2 -o link >out 2>err || code=$?
[ "$code" = 143 ] || { cat err >&2 && fail "exit code $code after a signal while a file is written"; }
expect 0 verify link
[ -L link ] && differ one.plan linked/file && [ "$(ls -A linked)" = file ] || fail "not replaced alone: $(ls -A linked)"

# --- names: as long as they can be, or too long, which is said before the work
long=$(printf 'x%.0s' {1..255})
expect 0 plan "$model" --ranks 2 -o "$long"
expect 0 verify "$long"
expect 1 plan "$model" --ranks 2 -o "x$long"
said err 'File name too long; choose a shorter one'
silent out
for under in linked/file/x new/; do
  expect 1 plan "$model" --ranks 2 -o $under
  said err "cannot write $under: "
  silent out
done

deep=$(printf 'folder/%.0s' {1..500})
for option in --resume --init --data --metrics; do
  expect 1 run "$model" --ranks 2 --data "$data" $option "$deep" --quiet
  grep -q 'No such file or directory' err || { cat err >&2 && fail "the reason is lost behind the name: $option"; }
done

# --- weights that are no numbers, or too large: no text is drawn from them, and none becomes infinite on its way
spoil() { # BYTE FILE: the last 1000 bytes of closed's weights are this one, in octal
  cp closed/model.safetensors "$2"
  head -c 1000 /dev/zero | tr '\0' "\\$1" | dd of="$2" bs=1 seek=$(($(stat -c %s "$2") - 1000)) conv=notrunc status=none
}
spoil 377 nan.safetensors
spoil 177 vast.safetensors
for weights in nan vast; do
  expect 1 generate "$model" --weights $weights.safetensors --prompt '!' --tokens 4
  said err "generate: $weights.safetensors: the model gives "
  [ "$(cat out)" = '!' ] || fail 'a text was drawn from no numbers'
done
expect 1 export "$model" narrow --to safetensors --weights vast.safetensors --dtype f16
said err 'holds values that are too large for F16; choose another --dtype'
[ -z "$(ls -A narrow)" ] || fail "left behind: $(ls -A narrow)"
expect 0 export "$model" narrow --to safetensors --weights vast.safetensors --dtype bf16

# --- pipes that nobody writes to: refused, not waited for
mkfifo pipe
mkdir -p folder whole/step-00000005 && mkfifo folder/{model.safetensors,config.json} whole/step-00000005/checkpoint.json
pipe() { # MESSAGE ARGUMENT...
  code "$fsdpc" "${@:2}" >out 2>err </dev/null
  [ "$code" = 1 ] || fail "fsdpc ${*:2}: exit code $code"
  said err "$1"
  [ "$(wc -l <err)" = 1 ] || { cat err >&2 && fail "fsdpc ${*:2}: not one message"; }
}
for command in explain verify check 'draw --dot x'; do
  # shellcheck disable=SC2086
  pipe 'it is not a regular file' $command pipe
done
for path in pipe folder /dev/zero; do
  pipe 'it is not a regular file' import "$path"
done
pipe 'it is not a regular file' explain --measured pipe "$model"
pipe 'it is not a regular file' run --data "$data" pipe
pipe 'not a plain file' "${run[@]:1}" --init pipe
pipe 'not a plain file' "${run[@]:1}" --init folder
pipe 'the checkpoint is damaged' "${run[@]:1}" --resume whole
mv folder/model.safetensors folder/model.safetensors.index.json
pipe 'cannot be read as JSON' "${run[@]:1}" --init folder

# --- a name in Latin-1: JSON and HTML get it with U+FFFD
name=$(printf 'caf\xe9') shown=$(printf 'caf\xef\xbf\xbd')
mkdir "$name" && cp "$data" "$name/t.bin" && { cat "$model" && echo 'junk('; } >"$name/broken.fsdp"
expect 0 run "$model" --ranks 1 --steps 1 --data "$name/t.bin" --metrics metrics.jsonl --save "$name/out" --quiet
said metrics.jsonl "\"data\":[\"$shown/t.bin\"]"
said metrics.jsonl "\"weights\":\"$shown/out/model.safetensors\""
expect 1 check "$name/broken.fsdp" --json
said out "\"file\": \"$shown/broken.fsdp\""
expect 1 check "$name/none.fsdp" --json
said out "cannot read \\\"$shown/none.fsdp\\\""
cp "$model" "$name/m.fsdp"
expect 0 draw "$name/m.fsdp" --ranks 2 --html m.html --timeline m.svg
iconv -f UTF-8 -t UTF-8 m.html m.svg >/dev/null || fail 'a report that is no UTF-8'
said m.html "$shown/m.fsdp"
code=0

# --- a trace that something else has changed
expect 0 run one.plan --steps 2 --data "$data" --trace step.json --quiet
expect 0 explain one.plan --measured step.json
for wild in -1 1e300 '"7"'; do
  sed -E "s/\"dur\":[0-9.]+/\"dur\":$wild/g" step.json >wild.json
  cmp -s step.json wild.json && fail 'the trace is as it was'
  expect 1 explain one.plan --measured wild.json
  said err 'wild.json holds times that no step has'
done
sed -E 's/"pid":[0-9]+/"pid":1e300/g' step.json >wild.json
expect 1 explain one.plan --measured wild.json
said err 'wild.json holds no measured step'

# --- too little memory is no bug of ours (sanitizers do not start with so little)
if (ulimit -v 20000 && "$fsdpc" --version) >/dev/null 2>&1; then
  code=0
  (ulimit -v 20000 && exec "$fsdpc" plan "$root/models/llama3-405b.fsdp" --ranks 1024) >out 2>err || code=$?
  [ "$code" = 1 ] || fail "exit code $code without memory"
  said err 'fsdpc: error: out of host memory (asked for '
  code=0
  (ulimit -v 80000 && exec "${run[@]}" --set d=384 --set vocab=20K --memory 1GiB "${one_plan[@]}") >out 2>err || code=$?
  [ "$code" = 1 ] || fail "exit code $code without memory for an arena"
  grep -qE '^fsdpc: error: memory: the arena of rank 0 .* cannot be mapped: .*raise the limit of address space \(ulimit -v\)$' err ||
    { cat err >&2 && fail 'no remedy where an arena cannot be mapped'; }
  # OpenBLAS takes its buffers with the first product, and would wait for them for ever, or interrupt us as it is loaded.
  if "$fsdpc" doctor | grep -q 'openblas.*loads'; then
    : >all
    for kib in 60000 120000 180000 240000 300000; do
      code bash -c "ulimit -v $kib && exec \"\$@\"" limited "${run[@]}" --gemm openblas --quiet 2>err >out
      case $code in 0 | 1) ;; *) cat err >&2 && fail "exit code $code with $kib KiB of address space" ;; esac
      cat err >>all
    done
    said all 'openblas needs 128 MiB of address space for 1 thread'
  fi
fi

# --- metrics that can no longer be written end a run that saves only after it has saved
mkfifo lines.fifo
head -n 5 lines.fifo >/dev/null & # reads the beginning, then goes
code "$fsdpc" run "$model" --ranks 2 --steps 300000 --data "$data" --threads 1 --metrics lines.fifo --save cut --quiet 2>err
wait $!
[ "$code" = 1 ] || { cat err >&2 && fail "exit code $code where metrics cannot be written"; }
grep -qE '^fsdpc: error: metrics: lines.fifo: cannot be written: Broken pipe.*; the checkpoint of step [0-9]+ is whole$' err &&
  [ "$(wc -l <err)" = 1 ] || { cat err >&2 && fail 'no word of what is saved'; }
last=$(basename cut/step-*)
expect 0 run "$model" --ranks 2 --steps $((10#${last#step-} + 2)) --data "$data" --threads 1 --save cut --resume auto --quiet

# --- little stack: kernels want much of it for 16 bits. More is taken where that is allowed; else one message says how much is needed
sed 's/^  precision .*/  precision bf16/' "$model" >narrow.fsdp
for threads in 1 2; do
  (ulimit -S -s 256 && exec "$fsdpc" run narrow.fsdp --ranks 2 --steps 1 --data "$data" --threads $threads --gemm builtin --quiet) ||
    fail "a run of $threads threads a rank with little stack"
done
bound() { if [ "$(id -u)" = 0 ]; then setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource "$@"; else "$@"; fi; }
if bound true 2>/dev/null; then
  code=0
  (ulimit -s 256 && bound "$fsdpc" run narrow.fsdp --ranks 2 --steps 1 --data "$data" --quiet) >out 2>err || code=$?
  [ "$code" = 1 ] || fail "exit code $code without stack"
  [ "$(cat err)" = 'fsdpc: error: a thread needs 2.00 MiB of stack, and the limit is 256 KiB; raise it (ulimit -s 2048)' ] ||
    { cat err >&2 && fail 'not one message'; }
else
  echo 'not tested: a limit of stacks that cannot be raised (no right to give up rights)'
fi

# --- no process more: said with what helps, also where it is not ours that cannot be started
if [ "$(id -u)" = 0 ] && cp "$fsdpc" "$model" "$data" . && chmod 755 . fsdpc && setpriv --reuid=65534 --clear-groups ./fsdpc --version >/dev/null 2>&1; then
  alone() { code env ASAN_OPTIONS=detect_leaks=0 setpriv --reuid=65534 --clear-groups bash -c 'ulimit -u 0 && exec "$@"' - ./fsdpc "$@" >out 2>err; }
  for command in "tune gpt-tiny.fsdp --ranks 1,2 --strategy full_shard --wrap block" "draw gpt-tiny.fsdp --ranks 2 --svg /dev/null" \
    "run gpt-tiny.fsdp --ranks 2 --data tokens.bin --quiet"; do
    # shellcheck disable=SC2086
    alone $command
    [ "$code" = 1 ] || { cat err >&2 && fail "exit code $code without a process more: $command"; }
    said err 'raise the limits of processes and memory (ulimit -u, -v)'
    ! grep 'apt-get install' err || fail 'a program that is there is to be installed'
  done
else
  echo 'not tested: no process more (not root, or a program that others cannot read)'
fi

# --- inputs of two lengths
sed -e '/input targets/a input more : int[batch, 8]' \
  -e 's/^  x = layernorm(x) as ln_f/  k, v = split(linear(embedding(more, vocab, d) as other, 2*d) as kv, 2)\n  x = layernorm(x + attention(x, k, v, heads, full)) as ln_f/' \
  "$model" >two.fsdp
expect 0 plan two.fsdp --ranks 2
expect 1 run two.fsdp --ranks 2 --data "$data"
said err 'token data feeds inputs of one length; give both the same, or only plan such a model'

# --- one folder, two writers: who comes second says so, and nothing is mixed
mkdir hf
exec 9<hf && flock 9
expect 1 export "$model" hf --to safetensors --weights closed
exec 9<&-
said err 'export: hf: another export or run is writing there'
[ -z "$(ls -A hf)" ] || fail "a refused export wrote $(ls -A hf)"
touch hf/.model{,-00002-of-00009}.safetensors.tmp hf/.model.safetensors.index.json.tmp hf/.others.tmp # the first three as a killed one leaves them
expect 0 export "$model" hf --to safetensors --weights closed
[ "$(ls -A hf | tr '\n' ' ')" = '.others.tmp model.safetensors ' ] || fail "left in an export's folder: $(ls -A hf)"

# --- data that cannot be read, though they could be mapped: holes of a file on a full disk
mkdir full
if unshare -m mount -t tmpfs tmpfs full 2>/dev/null; then
  # Without /proc a file without a name could be opened by no other rank. (Sanitizers look for leaks there.)
  unlisted() { code unshare -m bash -c 'umount -l /proc && exec "$@"' - "$@" 2>err; }
  unlisted "$fsdpc" --version >out
  if [ "$code" = 0 ]; then
    unlisted "${run[@]}" --quiet --save unlisted
    [ "$code" = 0 ] || { cat err >&2 && fail "exit code $code without /proc"; }
    "$compare" weights unlisted/model.safetensors closed/model.safetensors
  fi
  # shellcheck disable=SC2016
  code unshare -m bash -c 'mount -t tmpfs -o size=64k tmpfs full && truncate -s 1M full/holes.bin && exec "$@"' - \
    "$fsdpc" run "$model" --ranks 2 --steps 2 --data full/holes.bin --quiet >out 2>err
  [ "$code" = 1 ] || { cat err >&2 && fail "exit code $code with data that cannot be read"; }
  said err 'data: a file could not be read to its end'
  # shellcheck disable=SC2016
  code unshare -m bash -c 'mount -t tmpfs -o size=16k tmpfs full && exec "$@"' - \
    "$fsdpc" export "$model" full/hf --to safetensors --weights closed >out 2>err
  [ "$code" = 1 ] || { cat err >&2 && fail "exit code $code of an export to a full disk"; }
  said err ' are free; free some space there, or choose another folder'
  # shellcheck disable=SC2016
  if command -v dot >/dev/null && [ "${fsdpc#/tmp}" = "$fsdpc" ]; then # a picture needs no folder for temporary files
    unshare -m bash -c 'mount -t tmpfs -o ro tmpfs /tmp && exec "$@"' - "$fsdpc" draw one.plan --svg units.svg || fail 'no picture'
    grep -q '<svg' units.svg || fail 'no picture of the units'
  fi
else
  echo 'not tested: data that cannot be read, nor pictures without /tmp (no right to mount)'
fi
