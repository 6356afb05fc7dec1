[ -z "${ZSH_VERSION-}" ] || setopt interactive_comments
# Send a request, print its response and keep it; `field NAME` prints one field of it.
call() {
  local failed=0
  RESPONSE=$(curl -sS --fail-with-body "$BASE_URL$1" "${@:2}") || failed=$?
  printf '\n== %s\n' "$1"
  python3 -m json.tool <<< "${RESPONSE:-null}"
  return $failed
}
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<< "$RESPONSE"; }
json='Content-Type: application/json'
