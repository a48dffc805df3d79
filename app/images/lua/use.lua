-- ARGV: tenant id ttl_ms
-- Returns {sha, size, width, height, price, memory} and keeps the picture for another `ttl_ms`; {} when there is none.
local tenant, id = ARGV[1], ARGV[2]
local now = now_ms()
sweep(now)
local sha, size, width, height, price, memory = unpack(redis.call('HMGET', P .. 'handle:' .. tenant .. ':' .. id,
                                                   'sha', 'size', 'width', 'height', 'price', 'memory'))
if not sha then
  return {}
end
if redis.call('EXISTS', P .. 'image:' .. tenant .. ':' .. sha) == 0 then -- a Redis that evicts
  drop(tenant, id)
  return {}
end
keep_until(tenant, id, sha, tonumber(size), now, tonumber(ARGV[3]))
return {sha, tonumber(size), tonumber(width), tonumber(height), tonumber(price or 0), tonumber(memory or 0)}
