package redisfence

import (
	"crypto/sha1"
	"encoding/hex"
)

// A script is run by its hash, and sent in full to a server that does not know it yet.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) // Redis identifies scripts this way; nothing depends on its strength
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// readMark is the start of scripts that read a mark, KEYS[1]. It sets m to its fields, and seen and
// written to its tokens as numbers; bound is false if there is no mark, and the others are then
// those of the zero mark.
const readMark = `
local bound = redis.call('EXISTS', KEYS[1]) == 1
local m = {'', '', '0', '0', ''}
if bound then
  m = redis.call('HMGET', KEYS[1], 'backend', 'lock', 'token', 'written', 'nonce')
  local function isToken(s) return s and #s <= 16 and string.match(s, '^%d+$') end
  if not (m[1] and m[2] and isToken(m[3]) and isToken(m[4])) then
    return redis.error_reply('LOCKSTEP the key of the mark holds something that is no mark')
  end
end
local seen, written = tonumber(m[3]), tonumber(m[4])
`

// A step takes as KEYS the mark and the keys of the work; as ARGV backend, lock, token, number of
// the step, nonce and the arguments of the work. The reply is {"admitted"}, or {"refused", backend,
// lock, token, written}. The work between the two halves is a function of its own keys and
// arguments.
const (
	beforeWork = readMark + `
local token, step = tonumber(ARGV[3]), ARGV[4]
if bound then
  local refused = {'refused', m[1], m[2], m[3], m[4]}
  if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return refused end
  if step ~= '1' and m[5] == ARGV[5] then return {'admitted'} end
  if step == '3' and written == token then return refused end
  if token < seen then return refused end
end
redis.call('HSET', KEYS[1], 'backend', ARGV[1], 'lock', ARGV[2], 'token', ARGV[3], 'written', m[4])
if step == '1' then return {'admitted'} end
local k, a = {}, {}
for i = 2, #KEYS do k[i - 1] = KEYS[i] end
for i = 6, #ARGV do a[i - 5] = ARGV[i] end
local result = (function(KEYS, ARGV)
`
	afterWork = `
end)(k, a)
if type(result) == 'table' and result.err then return result end
redis.call('HSET', KEYS[1], 'written', ARGV[3], 'nonce', ARGV[5])
return {'admitted'}`
)

// stepScript is the rule around some work.
func stepScript(work string) script { return newScript(beforeWork + work + afterWork) }

var (
	noWork     = stepScript("")
	setWork    = stepScript(`redis.call('SET', KEYS[1], ARGV[1])`)
	deleteWork = stepScript(`redis.call('DEL', KEYS[1])`)

	// markScript returns the mark, with all fields empty if there is none: {"mark", backend, lock,
	// token, written}.
	markScript = newScript(readMark + `return {'mark', m[1], m[2], m[3], m[4]}`)

	// resetScript takes as ARGV the four fields of the expected mark and of the one to store. The
	// reply is {"reset"}, or that of markScript.
	resetScript = newScript(readMark + `
for i = 1, 4 do
  if m[i] ~= ARGV[i] then return {'mark', m[1], m[2], m[3], m[4]} end
end
redis.call('HSET', KEYS[1], 'backend', ARGV[5], 'lock', ARGV[6], 'token', ARGV[7], 'written', ARGV[8])
redis.call('HDEL', KEYS[1], 'nonce')
return {'reset'}`)

	// probeScript returns {"server", version, policy, maxmemory}; the version is empty before Redis
	// 7, the others if the user may not ask. KEYS[1] selects the server.
	probeScript = newScript(`
local memory = redis.pcall('INFO', 'memory')
if type(memory) ~= 'string' then memory = '' end
return {'server', redis.REDIS_VERSION or '', string.match(memory, 'maxmemory_policy:([%w-]+)') or '',
  string.match(memory, 'maxmemory:(%d+)') or ''}`)
)
