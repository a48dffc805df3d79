-- ARGV: worker model v
-- The worker goes away in good order: what it has not finished, or has not even heard of, is redelivered at once,
-- and its delivery does not count as a crash.
local worker, model, v = ARGV[1], ARGV[2], ARGV[3]
not_idle(v, model, worker)
for _, lane in ipairs(lanes(model)) do
  for _, pending in ipairs(redis.call('XPENDING', lane, GROUP, '-', '+', 1000, worker)) do
    local entry, deliveries = pending[1], pending[4]
    redis.call('XCLAIM', lane, GROUP, worker, 0, entry, 'IDLE', 3600000, 'RETRYCOUNT', deliveries - 1, 'JUSTID')
    local read = redis.call('XRANGE', lane, entry, entry)[1]
    local fields = read and fields_of(read)
    local id = fields and fields.id
    if id and redis.call('HGET', P .. 'req:' .. id, 'state') == 'taken' then
      redis.call('HSET', P .. 'req:' .. id, 'state', 'queued', 'worker', '')
      add_queued(model, redis.call('HGET', P .. 'req:' .. id, 'priority'), fields.tenant, price_of(fields), 1)
    end
  end
end
redis.call('DEL', P .. 'worker:' .. worker, P .. 'inbox:' .. worker)
redis.call('SREM', P .. 'workers', worker)
return 1
