-- Stands before every script. KEYS[1] is the prefix `pb1:{namespace}:`.
--
--   handle:TENANT:ID     hash: sha size width height price memory
--   handles              sorted set: TENANT:ID -> when it expires, in ms
--   handle-bytes         hash: bytes of all handles ('') and of each tenant's
--
-- The bytes are those that the queue knows: image:TENANT:SHA256. A handle counts in `refs` like one more open
-- request, so that the last answer about a picture does not remove it.

local P = KEYS[1]

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function int(number)
  return string.format('%.0f', number)
end

local function keep_until(tenant, id, sha, now, ttl)
  redis.call('ZADD', P .. 'handles', int(now + ttl), tenant .. ':' .. id)
  local image = P .. 'image:' .. tenant .. ':' .. sha
  if redis.call('PTTL', image) < ttl then
    redis.call('PEXPIRE', image, int(ttl))
  end
end

-- Returns whether there was one.
local function drop(tenant, id)
  local handle = P .. 'handle:' .. tenant .. ':' .. id
  local sha, size = unpack(redis.call('HMGET', handle, 'sha', 'size'))
  redis.call('ZREM', P .. 'handles', tenant .. ':' .. id)
  if not sha then
    return 0
  end
  redis.call('DEL', handle)
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

local function sweep(now)
  for _, member in ipairs(redis.call('ZRANGE', P .. 'handles', '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 100)) do
    drop(string.match(member, '^(.*):([^:]*)$'))
  end
end
