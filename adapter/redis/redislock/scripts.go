package redislock

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

// The scripts of the protocol. KEYS[1] is the record and KEYS[2] the counter. Numbers in Lua are
// float64, which represents every integer up to 2^53 exactly.
var (
	// takeScript takes as ARGV id, TTL in ms, owner, metadata. The reply is "granted" and the
	// token, or "busy" and the reply of showScript. The same id gets its own grant again. The
	// package documentation describes the floor; 1735689600 is the start of 2025.
	takeScript = newScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then
  local r = redis.call('HMGET', KEYS[1], 'id', 'token', 'owner', 'since', 'metadata')
  if r[1] == ARGV[1] then return {'granted', r[2]} end
  return {'busy', r[2], r[3], r[4], r[5]}
end
local now = redis.call('TIME')
local floor = (now[1] - 1735689600) * 4194304 + now[2]
local token = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, floor)
if token > 9007199254740991 then
  return redis.error_reply('LOCKSTEP no tokens are left: the clock of this server is, or was, after the year 2092')
end
local text = string.format('%.0f', token)
redis.call('SET', KEYS[2], text)
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'token', text, 'owner', ARGV[3],
  'since', now[1] .. string.format('%06d', now[2]), 'metadata', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'granted', text}`)

	// extendScript takes as ARGV id, TTL in ms. The reply is 1, or 0 if the record does not have
	// that id.
	extendScript = newScript(`
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

	// releaseScript takes as ARGV id. The reply is as for extendScript. A user without the right to
	// publish can still release.
	releaseScript = newScript(`
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', KEYS[1], '')
return 1`)

	// showScript returns the public part of a record: token, owner, since in microseconds,
	// metadata; nulls if there is none.
	showScript = newScript(`return redis.call('HMGET', KEYS[1], 'token', 'owner', 'since', 'metadata')`)

	// probeScript returns the version, empty before Redis 7, and INFO memory, empty for a user
	// without the right to it.
	probeScript = newScript(`
local memory = redis.pcall('INFO', 'memory')
if type(memory) ~= 'string' then memory = '' end
return {redis.REDIS_VERSION or '', memory}`)
)
