-- KEYS[1] prefix. ARGV: lease_ms [key member]...
-- The requests go on: their leases begin again.
local time = redis.call('TIME')
local ends = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(ARGV[1])
for i = 2, #ARGV, 2 do
  local held = KEYS[1] .. 'key-held:' .. ARGV[i]
  redis.call('ZADD', held, 'XX', ends, ARGV[i + 1])
  redis.call('PEXPIRE', held, ARGV[1])
end
return 1
