package redlock

import (
	"crypto/sha1"
	"encoding/hex"
)

// The keys of one node, all under Config.KeyPrefix. Redlock's nodes are single masters, so they
// need no hash tags.
//
//	<prefix>lock:<name>   the record of a lock; Redis expires it after its TTL
//	<prefix>counter       one counter for all names. It has no TTL: losing it would matter if
//	                      the node's clock is wrong
//
// One counter serves all names: one counter per name would accumulate forever, and deleting one
// would defeat its purpose.
const (
	lockKey    = "lock:"
	counterKey = "counter"
)

// The record of a lock is a string of six parts separated by spaces; the last one may contain
// spaces:
//
//	<secret> <reading> <token> <since, ms> <owner> <metadata, JSON>
//
// The secret is the claim's, 32 hexadecimal digits; the token is 0 before step 2. The record is set
// with its TTL in one command, so that no failure in between leaves a record that never expires. A
// node runs a script completely or not at all.

// A script is sent by its hash, and again as text if the node does not know it.
type script struct{ text, hash string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) // SHA-1 is how Redis identifies scripts
	return script{text, hex.EncodeToString(sum[:])}
}

// scripts are the only commands that ever write to a node.
type scripts struct{ take, raise, extend, drop script }

func newScripts() scripts {
	return scripts{newScript(takeText), newScript(raiseText), newScript(extendText), newScript(dropText)}
}

// takeText is step 1. KEYS: lock, counter. ARGV: secret, TTL in ms, owner and metadata. It returns
// {1, reading} if the lock is ours, even if it already was, and otherwise {0, the other's record
// without the secret}.
//
// The reading is max(counter, floor). The floor keeps tokens rising if a node has lost its counter:
// it is the node's wall clock as seconds since 2025-01-01 shifted by 22 bits, plus the
// microseconds, so it outruns any number of grants that a node can make. It reaches 2^53, where
// Lua's numbers end, in 2093.
const takeText = `
local record = redis.call('GET', KEYS[1])
if record then
  local secret, rest = string.sub(record, 1, 32), string.sub(record, 34)
  if secret == ARGV[1] then return {1, string.match(rest, '^%d+')} end
  return {0, rest}
end
local now = redis.call('TIME')
local floor = (tonumber(now[1]) - 1735689600) * 4194304 + tonumber(now[2])
local reading = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), floor, 0))
local since = string.format('%.0f', tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. reading .. ' 0 ' .. since .. ' ' .. ARGV[3], 'PX', ARGV[2], 'NX')
return {1, reading}
`

// raiseText is step 2. KEYS: lock, counter. ARGV: secret, reading of step 1, token. It returns 1 if
// the lock there is the one that step 1 read, otherwise 0. It compares the reading as well as the
// secret: a step 1 request that the network delivers a second time, after others have come and
// gone, creates a record with our secret that step 1 did not read.
const raiseText = `
local record = redis.call('GET', KEYS[1])
if not record then return 0 end
local head, rest = string.match(record, '^(%x+ %d+) %d+( .*)$')
if head ~= ARGV[1] .. ' ' .. ARGV[2] then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[3]) then redis.call('SET', KEYS[2], ARGV[3]) end
redis.call('SET', KEYS[1], head .. ' ' .. ARGV[3] .. rest, 'KEEPTTL')
return 1
`

// extendText renews. KEYS: lock. ARGV: secret, TTL in ms. It returns 1 if the lock is ours,
// otherwise 0.
const extendText = `
local record = redis.call('GET', KEYS[1])
if not record or string.sub(record, 1, 32) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`

// dropText is the only way to delete a record. KEYS: lock. ARGV: secret. It returns 1 if the lock
// was ours, otherwise 0.
const dropText = `
local record = redis.call('GET', KEYS[1])
if not record or string.sub(record, 1, 32) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
`
