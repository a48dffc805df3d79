-- ARGV: worker v
-- Somebody saw the worker die: its requests count as idle at once instead of after the lease.
local worker, v = ARGV[1], ARGV[2]
redis.call('DEL', P .. 'worker:' .. worker, P .. 'inbox:' .. worker)
redis.call('SREM', P .. 'workers', worker)
for _, model in ipairs(redis.call('ZRANGE', P .. 'models', 0, -1)) do
  not_idle(v, model, worker)
  for _, lane in ipairs(lanes(model)) do
    for _, pending in ipairs(redis.call('XPENDING', lane, GROUP, '-', '+', 1000, worker)) do
      redis.call('XCLAIM', lane, GROUP, worker, 0, pending[1], 'IDLE', 3600000, 'JUSTID')
    end
  end
end
return 1
