-- ARGV: tenant id sha size width height ttl_ms max_bytes max_tenant_bytes bytes price memory
-- Returns {'kept'}, or {'tenant-queue-full' | 'queue-full', seconds until the first handle expires}.
local tenant, id, sha = ARGV[1], ARGV[2], ARGV[3]
local size, width, height, ttl = tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[7])
local now = now_ms()
sweep(now)

local held = redis.call('HMGET', P .. 'handle-bytes', '', tenant)
local full = nil
if tonumber(held[2] or 0) + size > tonumber(ARGV[9]) then
  full = 'tenant-queue-full'
elseif tonumber(held[1] or 0) + size > tonumber(ARGV[8]) then
  full = 'queue-full'
end
if full then
  local first = redis.call('ZRANGE', P .. 'handles', 0, 0, 'WITHSCORES')[2]
  return {full, math.max(1, math.ceil(((tonumber(first) or now) - now) / 1000))}
end

redis.call('SET', P .. 'image:' .. tenant .. ':' .. sha, ARGV[10], 'KEEPTTL')
redis.call('HINCRBY', P .. 'refs', tenant .. ':' .. sha, 1)
redis.call('HSET', P .. 'handle:' .. tenant .. ':' .. id, 'sha', sha, 'size', size, 'width', width, 'height', height,
           'price', ARGV[11], 'memory', ARGV[12])
redis.call('HINCRBY', P .. 'handle-bytes', '', size)
redis.call('HINCRBY', P .. 'handle-bytes', tenant, size)
keep_until(tenant, id, sha, size, now, ttl)
return {'kept'}
