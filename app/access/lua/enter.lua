-- KEYS[1] prefix. ARGV: key member rate_per_minute concurrency lease_ms (limits of 0 are none)
-- A bucket that holds `rate_per_minute` requests and fills evenly, and a set of leases that end by themselves
-- when an API process dies.
-- Returns {1, requests left, ms until the bucket is full}, or {0, 'rate' or 'concurrency', ms to wait}.
local held, bucket = KEYS[1] .. 'key-held:' .. ARGV[1], KEYS[1] .. 'key-rate:' .. ARGV[1]
local member, rate, concurrency, lease = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

if concurrency > 0 then
  redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
  if redis.call('ZCARD', held) >= concurrency then
    return {0, 'concurrency', 1000}
  end
end

local left, full_in = 0, 0
if rate > 0 then
  local was = redis.call('HMGET', bucket, 'left', 'at')
  local per_ms = rate / 60000
  left = math.min(rate, tonumber(was[1] or rate) + (now - tonumber(was[2] or now)) * per_ms)
  if left < 1 then
    return {0, 'rate', math.ceil((1 - left) / per_ms)}
  end
  left = left - 1
  redis.call('HSET', bucket, 'left', string.format('%.6f', left), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', bucket, 120000)
  full_in = math.ceil((rate - left) / per_ms)
end

if concurrency > 0 then
  redis.call('ZADD', held, now + lease, member)
  redis.call('PEXPIRE', held, lease)
end
return {1, math.floor(left), full_in}
