-- Stands before every script. KEYS[1] is the prefix `pb1:{namespace}:`.
--
--   handle:TENANT:ID     hash: sha size width height price memory
--   handles              sorted set: TENANT:ID:SHA:SIZE -> when it expires, in ms
--   handle-bytes         hash: bytes of all handles ('') and of each tenant's
--
-- A handle's hash expires a little after the handle: `sweep` comes first, and finds all it needs in `handles`.
--
-- The bytes are those that the queue knows: image:TENANT:SHA256. A handle counts in `refs` like one more open
-- request, so that the last answer about a picture does not remove it.

local P = KEYS[1]
local HANDLE_GRACE_MS = 60000

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function int(number)
  return string.format('%.0f', number)
end

local function keep_until(tenant, id, sha, size, now, ttl)
  redis.call('ZADD', P .. 'handles', int(now + ttl), table.concat({tenant, id, sha, int(size)}, ':'))
  redis.call('PEXPIRE', P .. 'handle:' .. tenant .. ':' .. id, int(ttl + HANDLE_GRACE_MS))
  local image = P .. 'image:' .. tenant .. ':' .. sha
  if redis.call('PTTL', image) < ttl then
    redis.call('PEXPIRE', image, int(ttl))
  end
end

-- Gives back what a handle held, once. Returns whether there was one.
local function forget(member, tenant, id, sha, size)
  redis.call('DEL', P .. 'handle:' .. tenant .. ':' .. id)
  if redis.call('ZREM', P .. 'handles', member) == 0 then
    return 0
  end
  redis.call('HINCRBY', P .. 'handle-bytes', '', -size)
  if redis.call('HINCRBY', P .. 'handle-bytes', tenant, -size) <= 0 then
    redis.call('HDEL', P .. 'handle-bytes', tenant)
  end
  if redis.call('HINCRBY', P .. 'refs', tenant .. ':' .. sha, -1) <= 0 then
    redis.call('HDEL', P .. 'refs', tenant .. ':' .. sha)
    redis.call('DEL', P .. 'image:' .. tenant .. ':' .. sha)
  end
  return 1
end

-- Returns whether there was one.
local function drop(tenant, id)
  local sha, size = unpack(redis.call('HMGET', P .. 'handle:' .. tenant .. ':' .. id, 'sha', 'size'))
  return sha and forget(table.concat({tenant, id, sha, size}, ':'), tenant, id, sha, size) or 0
end

local function sweep(now)
  for _, member in ipairs(redis.call('ZRANGE', P .. 'handles', '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 100)) do
    local tenant, id, sha, size = string.match(member, '^(.*):([^:]*):(%x+):(%d+)$')
    if tenant then
      forget(member, tenant, id, sha, size)
    else
      redis.call('ZREM', P .. 'handles', member)
    end
  end
  if redis.call('EXISTS', P .. 'handles') == 0 then
    redis.call('DEL', P .. 'handle-bytes')
  end
end
