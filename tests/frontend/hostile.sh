#!/usr/bin/env bash
# Inputs too large or too odd to store: each must give exactly one error, soon, and never a crash.
# usage: hostile.sh FRONTEND_TOOL
set -u
tool=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
seconds=100 # generous: sanitizers, a busy machine

# expect NAME PATTERN: x.fsdp gives one error that matches, and its output is short
expect() {
  local output status=0
  output=$(timeout "$seconds" "$tool" ${3-check} x.fsdp 2>&1) || status=$?
  local errors
  errors=$(grep -c 'error:' <<< "$output")
  if (( status != 1 || errors != 1 || ${#output} > 2000 )) || ! grep -q -- "$2" <<< "$output"; then
    echo "FAILED $1: exit $status, $errors errors, expected \"$2\""
    head -c 1500 <<< "$output"
    failed=$(( failed + 1 ))
  else
    echo "ok $1"
  fi
}

# times N TEXT: TEXT N times, without a line break
times() { yes "$2" | head -n "$1" | tr -d '\n'; }
in_model() { printf 'model m {\n  x = '; cat; printf '\n}\n'; }

tr -d '\0' < "$tool" | head -c 1000000 > x.fsdp
expect "binary junk" "not UTF-8 text\|control character"
head -c 1000000 "$tool" > x.fsdp
expect "binary with NUL bytes" "NUL byte (line"
printf 'model m { # caf\xe9\n}\n' > x.fsdp
expect "Latin-1" "byte 0xe9"
printf 'let a = 1\n\xc0\x80\n' > x.fsdp
expect "overlong UTF-8" "byte 0xc0"
printf 'let a = 1\n\x1b[31m\n' > x.fsdp
expect "escape sequence" "control character 0x1b"
truncate -s 65M x.fsdp
expect "a file of 65 MiB" "larger than 64 MiB"
mkdir y && rmdir y && rm x.fsdp && mkdir x.fsdp
expect "a folder" "it is a folder"
rmdir x.fsdp
expect "no file" "No such file"

times 10000000 a | in_model > x.fsdp
expect "a name of 10 MB" "longer than 200"
times 10000000 7 | in_model > x.fsdp
expect "a number of 10 MB" "longer than 200"
{ printf 'use "'; times 10000000 s; printf '"\n'; } > x.fsdp
expect "a string of 10 MB" "longer than 1000"
{ printf 'use "'; times 10000000 s; } > x.fsdp
expect "an open string of 10 MB" "not closed on its line"
{ times 5000000 'a+'; echo a; } | in_model > x.fsdp
expect "a sum of 10 MB" "more than 200 terms"
{ printf 'f('; times 5000000 'a,'; printf 'a)'; } | in_model > x.fsdp
expect "arguments of 10 MB" "more than 500000 tokens"
times 10000000 - | in_model > x.fsdp
expect "signs of 10 MB" "nests too deeply"
times 10000000 ' ' > x.fsdp
expect "10 MB of blanks" "states no model" "check --model"
{ printf '#'; times 10000000 c; } > x.fsdp
expect "a comment of 10 MB" "states no model" "check --model"
times 10000000 '@' > x.fsdp
timeout "$seconds" "$tool" check x.fsdp > /dev/null 2>&1
(( $? == 1 )) && echo "ok 10 MB of stray characters" || { echo "FAILED stray characters"; failed=$(( failed + 1 )); }
{ echo 'model m {'; times 3000000 'a=b'$'\x20'; echo '}'; } > x.fsdp
expect "10 MB of statements" "more than 500000 tokens"

{ times 10000 '('; printf 1; times 10000 ')'; } | in_model > x.fsdp
expect "10,000 parentheses" "deeper than 200"
times 10000 '(' | in_model > x.fsdp
expect "10,000 open parentheses" "deeper than 200"
times 10000 ')' | in_model > x.fsdp
expect "10,000 closing parentheses" "expected an expression"
{ times 10000 '['; printf 1; times 10000 ']'; } | in_model > x.fsdp
expect "10,000 brackets" "deeper than 200"
times 10000 '{' > x.fsdp
expect "10,000 braces" "expected a declaration"
{ printf 'plan '; times 10000 '{'; } > x.fsdp
expect "10,000 blocks" "deeper than 200"
{ times 10000 'f('; printf x; times 10000 ')'; } | in_model > x.fsdp
expect "10,000 calls" "deeper than 200"
{ printf 'model m {\n'; times 10000 'repeat i in 2 {'; times 10000 '}'; printf '}\n'; } > x.fsdp
expect "10,000 repeats" "deeper than 200"
{ printf 'x'; times 3000 '.x'; } | in_model > x.fsdp
expect "3,000 members" "more than 200 terms"

# A chain of 2,000 modules, each calling the next.
{
  echo 'model m {'
  echo '  input x: float[batch, 8]'
  echo '  input y: float[batch, 8]'
  for (( i = 0; i < 2000; i++ )); do echo "  module f$i(x) { return f$(( i + 1 ))(x) }"; done
  echo '  module f2000(x) { return linear(x, 8) }'
  echo '  loss = mse(f0(x), y)'
  echo '}'
} > x.fsdp
expect "a chain of 2,000 modules" "nest too deeply"

# As many rules as modules: each looks at its own module only.
cat > x.fsdp <<'MODEL'
model m {
  input x: float[batch, 8]
  input y: float[batch, 8]
  module f(x) {
    init "a" zeros
    freeze "b"
    return linear(linear(x, 8) as a, 8) as b
  }
  freeze "nothing"
  r = repeat 40000 f(x) as h
  loss = mse(r, y)
}
MODEL
expect "40,000 modules with rules" "matches no parameter"

# As many lines as a generator may write, none of which is of this model: no time is spent on what is not shown.
cat > x.fsdp <<'MODEL'
model m {
  input x: float[batch, 8]
  input y: float[batch, 8]
  module f(x) { return relu(linear(x, 8) as a) + x }
  r = repeat 1000 f(x) as h
  loss = mse(r, y)
}
MODEL
{ echo 'plan {'; for (( i = 0; i < 100000; i++ )); do echo "save h.$i.b"; done; echo '}'; } >> x.fsdp
shown=$(timeout "$seconds" "$tool" check x.fsdp 2>&1)
if grep -q 'help: did you mean "h.0.a"' <<< "$shown" && grep -q '99980 more not shown' <<< "$shown"; then
  echo "ok 100,000 lines of another model"
else
  echo "FAILED 100,000 lines of another model"
  failed=$(( failed + 1 ))
fi

# 200 files, each using the next.
for (( i = 0; i < 200; i++ )); do echo "use \"f$(( i + 1 )).fsdp\"" > "f$i.fsdp"; done
echo 'use "f0.fsdp"' > x.fsdp
expect "a chain of 200 files" "more than 100 files"
for (( i = 0; i < 200; i++ )); do echo "cluster { use \"c$(( i + 1 )).fsdp\" }" > "c$i.fsdp"; done
echo 'cluster { use "c0.fsdp" }' > x.fsdp
expect "a chain of 200 cluster files" "more than 100 files"

(( failed == 0 ))
