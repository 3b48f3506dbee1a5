#!/usr/bin/env bash
# Owns: FSDPC_CUDA_ALGORITHMS, a file of algorithms of products: raced once, read again, shared by ranks, kept for other GPUs, and what is said
# of a file that is of no use. How long an algorithm takes is said by FAKE_CANDIDATES, not measured. Run as: algorithms.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"

model=$fixtures/gpt-tiny.fsdp
header() { grep -oE 'products [0-9a-f]{8}' err; }
# A run that lists its products; NAME.jsonl and NAME.weights/ are what it trained.
listed() {
  local name=$1
  shift
  rm -rf "$name.weights"
  FSDPC_CUDA_PRODUCTS=1 expect 0 run "${one_plan[@]}" "$model" --steps 2 --backend cuda --data "$fixtures/tokens.bin" --metrics "$name.jsonl" \
    --save "$name.weights" --threads 1 "$@"
}
same() { "$compare" metrics "$1.jsonl" "$2.jsonl" 0 && "$compare" weights "$1.weights/model.safetensors" "$2.weights/model.safetensors"; }
choices() { grep -c '"gpu"' "$1"; }
raced() { grep -c '^note: raced the algorithms of [0-9]* products in' err || true; }
refused() { expect 1 run "$model" --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"; }

# The products that the heuristic tells apart: it does not see whether they add.
unlike() { grep '^product ' err | sed 's/, adds//' | sort -u | wc -l; }

# Without it the heuristic's first is taken, however slow.
export FAKE_CANDIDATES=3,1,2
listed plain --ranks 1
first=$(header)
said err 'tile 0 splits 0 reduction 0 swizzle 0 option 0 stages 0 inner 0 cluster 0; the heuristic'"'"'s first'

# With it the fastest: other algorithms, of which the file then has one a product.
export FSDPC_CUDA_ALGORITHMS=$PWD/choices.json
listed raced --ranks 1
said err 'tile 1 splits 0 reduction 0 swizzle 0 option 0 stages 0 inner 0 cluster 0; raced, 3 candidates, 200.0 % faster than the first'
said err "another than cuBLASLt's first choice; they are kept in $FSDPC_CUDA_ALGORITHMS"
[ "$(raced)" = 1 ] && [ "$(choices choices.json)" = "$(unlike)" ] || fail 'the file has not one choice a product'
best=$(header) all=$(choices choices.json)
[ "$best" != "$first" ] || fail 'what won the race was not taken'
differ raced.weights/model.safetensors plain.weights/model.safetensors || fail 'these algorithms ought to differ in bits'
"$compare" metrics raced.jsonl plain.jsonl 1e-3
[ -z "$(find . -maxdepth 1 -name '.fsdpc.*')" ] || fail 'another file is left'

# Another run asks nobody, and has the bits of the one that raced: whatever is faster now, and in another plan.
cp choices.json before.json
FAKE_CANDIDATES=1,2,3 FAKE_CHOICES=asked listed again --ranks 1
[ ! -e asked ] && [ "$(raced)" = 0 ] || fail 'what the file knows was raced again'
[ "$(header)" = "$best" ] || fail 'the file was not followed'
said err '; from the file'
! grep -qE "; raced|; the heuristic" err || fail 'not all products are from the file'
same again raced
listed again --ranks 1 --checkpoint full
[ "$(header)" = "$best" ] || fail 'another plan has other algorithms'
same again raced
cmp -s choices.json before.json || fail 'the file was changed by runs that it knows all of'

# Ranks agree: one races for all, whether they share a GPU or not.
for gpus in 1 2; do
  export FSDPC_CUDA_ALGORITHMS=$PWD/ranks-$gpus.json
  FAKE_GPUS=$gpus listed ranks --ranks 2
  [ "$(raced)" = 1 ] || fail "$(raced) ranks raced"
  ! grep -q 'by different algorithms' err || fail 'ranks differ'
  FAKE_GPUS=$gpus FAKE_CANDIDATES=1,2,3 listed ranks-again --ranks 2
  [ "$(raced)" = 0 ] || fail 'a rank raced what is known'
  same ranks ranks-again
done

# Who finds the file locked waits, and then reads what was put in its place. A rank that fails while another waits for it ends both.
cp choices.json put.json
(flock 9 && touch held && sleep 1 && mv put.json locked.json) 9>locked.json &
wait_for test -e held
export FSDPC_CUDA_ALGORITHMS=$PWD/locked.json
listed again --ranks 1
wait
[ "$(raced)" = 0 ] && [ "$(header)" = "$best" ] || fail 'the lock was not waited for'
FAKE_CANDIDATES=x,x FSDPC_CUDA_ALGORITHMS=none.json expect 1 run "$model" --ranks 2 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'none runs; the last failed with status 15'

# What is hardly faster is not taken, nor what is fast in a burst only, but what is in the long run; what cannot be launched does not count, the
# first neither; a race of one is none.
for row in '1,0.995 first 2' '1,0.98 other 2' '1,0.9~1.1 first 2' '1~1.2,1.05 other 2' '3,x,1 other 2' 'x,1,3 other 2' 'x,x,5 other 1' '1 first 1'; do
  read -r FAKE_CANDIDATES which count <<<"$row"
  export FSDPC_CUDA_ALGORITHMS=$PWD/one.json
  rm -f one.json
  listed one --ranks 1
  said err "; raced, $count candidate"
  case $which in
    first) [ "$(header)" = "$first" ] && same one plain || fail "$row: the first was not kept" ;;
    other) [ "$(header)" != "$first" ] || fail "$row: the first was kept" ;;
  esac
done
FAKE_CANDIDATES=x,x FSDPC_CUDA_ALGORITHMS=none.json refused
said err 'cuBLASLt: of the 2 algorithms that it offers for the product 64 x 72 x 24'
said err 'none runs; the last failed with status 15; unset FSDPC_CUDA_ALGORITHMS'
[ ! -e none.json ] || fail 'a race that ended in failure left a file'

# Numbers of 16 bits, and sums that are added to in them.
export FAKE_CANDIDATES=3,1,2
for precision in 'bf16 reduce f32' 'bf16 reduce bf16' 'f16 reduce f32 loss_scale { init 1024 interval 9 }'; do
  sed "s/precision f32 reduce f32/precision $precision/" "$fixtures/gpt-tiny.fsdp" >half.fsdp
  export FSDPC_CUDA_ALGORITHMS=$PWD/half.json
  rm -f half.json
  model=half.fsdp
  listed half --ranks 1 --micro-batch 2
  listed half-again --ranks 1 --micro-batch 2
  [ "$(raced)" = 0 ] || fail 'what the file knows was raced again'
  same half half-again
done
model=$fixtures/gpt-tiny.fsdp

# What only differs by adding is one choice.
model=$fixtures/llama-tiny.fsdp FSDPC_CUDA_ALGORITHMS=$PWD/llama.json listed llama --ranks 1
[ "$(choices llama.json)" = "$(unlike)" ] && [ "$(unlike)" -lt "$(grep -c '^product ' err)" ] || fail 'products that add have choices of their own'
model=$fixtures/llama-tiny.fsdp FSDPC_CUDA_ALGORITHMS=$PWD/llama.json listed llama-again --ranks 1
[ "$(raced)" = 0 ] || fail 'what the file knows was raced again'
same llama llama-again

# Of another GPU, or another cuBLASLt, the file knows nothing, and keeps what it has of this one.
export FSDPC_CUDA_ALGORITHMS=$PWD/choices.json
FAKE_GPU_NAME='other GPU' FAKE_CANDIDATES=1,2 listed other --ranks 1
[ "$(raced)" = 1 ] && [ "$(choices choices.json)" = $((2 * all)) ] && [ "$(header)" = "$first" ] || fail 'another GPU was not raced for itself'
FAKE_CUBLASLT_VERSION=130100 FAKE_CANDIDATES=1,2 listed other --ranks 1
[ "$(raced)" = 1 ] && [ "$(choices choices.json)" = $((3 * all)) ] || fail 'another version was not raced for itself'
listed again --ranks 1
[ "$(raced)" = 0 ] && [ "$(header)" = "$best" ] || fail 'the choices of the first GPU are lost'
same again raced

# A link stays one, a file its rights; an empty file knows nothing; quiet runs say nothing of it.
: >real.json
chmod 640 real.json
ln -s real.json link.json
FSDPC_CUDA_ALGORITHMS=link.json train quiet "$model" --ranks 1 --steps 1 --backend cuda
silent err
[ -L link.json ] && [ "$(choices real.json)" = "$all" ] && [ "$(stat -c %a real.json)" = 640 ] || fail 'the link or its rights were lost'
expect 0 doctor
said out "FSDPC_CUDA_ALGORITHMS $FSDPC_CUDA_ALGORITHMS"
expect 0 man
said out 'the name of a file; the algorithms of matrix products'

# What is of no use is said before anything is raced.
bad() {
  printf '%s' "$1" >bad.json
  FSDPC_CUDA_ALGORITHMS=bad.json FAKE_CHOICES=asked refused
  said err "FSDPC_CUDA_ALGORITHMS: bad.json: $2"
  said err '; delete the file to have its products raced anew, or name another'
  [ "$(cat bad.json)" = "$1" ] && [ ! -e asked ] || fail 'a file that is of no use was written to'
}
bad '{"schema_version": 1,' 'line 1, column 21: '
bad '[]' 'has no schema_version, or no list of choices'
bad '{"schema_version": 1}' 'has no schema_version, or no list of choices'
bad '{"schema_version": 2, "choices": []}' 'has schema_version 2, and this fsdpc reads 1'
bad '{"schema_version": 1, "choices": [{"gpu": "fake GPU"}]}' 'choice 1 lacks its gpu, or a number of place, shape or algorithm'
bad "$(sed '0,/"tile": 1/s//"tile": -1/' choices.json)" 'choice 1 lacks its gpu'
sed '0,/"tile": 1/s//"tile": 15/' choices.json >odd.json
FSDPC_CUDA_ALGORITHMS=odd.json refused
said err 'FSDPC_CUDA_ALGORITHMS: odd.json: cuBLASLt refuses the algorithm of the product'
said err 'with status 15; delete that choice, or the file, to have it raced anew'
FSDPC_CUDA_ALGORITHMS=no/such/folder.json refused
said err 'FSDPC_CUDA_ALGORITHMS: no/such/folder.json: cannot be opened: No such file or directory'
FSDPC_CUDA_ALGORITHMS=$PWD refused
said err 'cannot be opened: Is a directory'
FSDPC_CUDA_ALGORITHMS=/dev/null refused
said err '/dev/null: is no plain file'

# One that may only be read will do, unless it must learn.
if [ "$(id -u)" != 0 ]; then
  mkdir fixed
  cp choices.json fixed
  chmod 444 fixed/choices.json
  chmod 555 fixed
  FSDPC_CUDA_ALGORITHMS=fixed/choices.json listed again --ranks 1
  same again raced
  FAKE_GPU_NAME='third GPU' FSDPC_CUDA_ALGORITHMS=fixed/choices.json FAKE_CHOICES=asked refused
  said err 'does not know all products of this run, and cannot be written: Permission denied'
  [ ! -e asked ] || fail 'products were raced for a file that cannot be written'
  chmod 755 fixed
fi
