#!/usr/bin/env bash
# Owns: the direction of includes, and what READMEs say of files. Arrows never point up: a folder includes only what stands below it in README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

# Quoted includes of the sources under a folder, as "file:included".
includes() {
  find "$@" \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.l' -o -name '*.y' -o -name '*.cu' \) \
    -not -path '*/generated/*' -print0 2>/dev/null |
    xargs -0 -r grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]+"' |
    sed -E 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]+)"/:\1/'
}

# only NAME 'ALLOWED (regular expression of included paths)' FIND-ARGUMENT...
only() {
  local name=$1 allowed=$2 bad
  shift 2
  bad=$(includes "$@" | grep -vE ":($allowed)$" || true)
  [ -z "$bad" ] && return
  printf '%s may include only %s, but:\n%s\n' "$name" "$allowed" "$bad"
  failed=1
}

only base 'base/[^/]+' base
# kernels depend on nothing; what a parameter starts as is a table of names, without code.
only kernels 'kernels/.+|base/recipe\.h' kernels
only frontend 'base/[^/]+|frontend/[^/]+|lexer\.h|parser\.h' frontend
only planner/plan 'base/[^/]+|planner/plan/[^/]+' planner/plan
only planner/view 'base/[^/]+|planner/plan/[^/]+|planner/view/[^/]+' planner/view
only planner/place 'base/[^/]+|planner/plan/[^/]+|planner/place/[^/]+' planner/place
# The planner's other rooms see what they share, and each the rooms before it.
shared='base/[^/]+|frontend/(graph\.h|cluster\.h|layers\.def)|planner/plan/[^/]+|planner/(planner|cost|pins|world|relaxations)\.h'
below=$shared
for room in program schedule emit; do
  below+="|planner/$room/[^/]+"
  only "planner/$room" "$below" "planner/$room"
done
only planner/search "$below|planner/place/place\.h|planner/search/[^/]+" planner/search
only planner/executor "$shared|planner/executor/[^/]+" planner/executor
only planner 'base/[^/]+|frontend/(graph\.h|cluster\.h|layers\.def)|planner/.+' planner -maxdepth 1
# The runtime's rooms: what all share, kernels where they run, and of each other as little as this.
shared='base/[^/]+|planner/plan/[^/]+|runtime/(runtime|failure|environment|backend|comm|counter|ranges|shapes|floats)\.(h|def)'
only runtime/launch "$shared|runtime/launch/[^/]+" runtime/launch
only runtime/comm "$shared|kernels/[^/]+|runtime/launch/(control|launcher)\.h|runtime/comm/[^/]+" runtime/comm
only runtime/files "$shared|kernels/[^/]+|runtime/launch/control\.h|runtime/(feed|scaler)\.h|runtime/files/[^/]+" runtime/files
only runtime/cpu "$shared|kernels/.+|runtime/cpu/[^/]+" runtime/cpu
only runtime/cuda "$shared|kernels/.+|runtime/beside\.h|runtime/cuda/[^/]+" runtime/cuda
only runtime 'base/[^/]+|kernels/.+|planner/plan/[^/]+|runtime/.+' runtime -maxdepth 1
only cli '(base|cli|frontend|kernels|planner|runtime)/.+' cli

# The verifier re-derives what it checks: not even the simulator's or the reader's view of a plan.
only 'the verifier' 'base/[^/]+|planner/plan/(plan|verify|check|coverage|intervals|instr)\.(h|def)' \
  planner/plan/verify*.[ch] planner/plan/check.h planner/plan/coverage.[ch] planner/plan/intervals.[ch]

# Only cli owns a main outside the tests, and every file says what it owns.
bad=$(grep -lE '^int main\(' -r base frontend planner kernels runtime --include='*.c' || true)
[ -z "$bad" ] || { echo "main belongs to cli: $bad" && failed=1; }
while IFS= read -r file; do
  head -n 3 "$file" | grep -q 'Owns:' || { echo "$file does not open with what it owns" && failed=1; }
done < <(find base frontend planner kernels runtime cli -name '*.[chly]' -not -path '*/generated/*')

# names README: what its tables list, `name.{h,c}` and `name.[ch]` as two.
names() {
  sed -nE 's/^\| (`[^|]*)\|.*/\1/p' "$1" | grep -oE '`[^`]+`' | tr -d '`' |
    awk '{ sub(/\[ch\]$/, "{c,h}") } match($0, /\{[^}]*\}/) {
      count = split(substr($0, RSTART + 1, RLENGTH - 2), ends, ",")
      for (k = 1; k <= count; k++) print substr($0, 1, RSTART - 1) ends[k] substr($0, RSTART + RLENGTH)
      next
    } { print }'
}

# Each file of a folder, its subfolders without a README included, stands in the README's tables, under its name at most once; what stands there exists.
while IFS= read -r readme; do
  folder=${readme%/README.md}
  mapfile -t named < <(names "$readme")
  for name in "${named[@]}"; do
    compgen -G "$folder/$name" >/dev/null || { echo "$readme names $name, which is not there" && failed=1; }
  done
  while IFS= read -r file; do
    nearest=$(dirname "$folder/$file")
    until [ -e "$nearest/README.md" ]; do nearest=$(dirname "$nearest"); done
    [ "$nearest" = "$folder" ] || continue
    exact=0 like=0
    for name in "${named[@]}"; do
      [ "$file" = "$name" ] && exact=$((exact + 1))
      # shellcheck disable=SC2053
      [[ $file == $name || $name == */ && $file == $name* ]] && like=1
    done
    [ "$exact" -le 1 ] && [ "$like" = 1 ] || { echo "$readme names $file $exact times" && failed=1; }
  done < <(cd "$folder" && find . -type f ! -name README.md ! -name CMakeLists.txt ! -path '*/generated/*' ! -name '.*' | sed 's|^\./||')
done < <(find base frontend planner kernels runtime cli -name README.md)
exit "$failed"
