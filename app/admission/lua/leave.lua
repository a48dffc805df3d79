-- ARGV: worker [id attempt]...
-- The worker goes away in good order: what it has not finished is redelivered at once, and its delivery does
-- not count as a crash.
local worker = ARGV[1]
for i = 2, #ARGV, 2 do
  local req = held_by(ARGV[i], worker, ARGV[i + 1])
  if req then
    local pending = redis.call('XPENDING', req.lane, GROUP, req.entry, req.entry, 1)[1]
    redis.call('XCLAIM', req.lane, GROUP, worker, 0, req.entry, 'IDLE', 3600000, 'RETRYCOUNT', pending[4] - 1, 'JUSTID')
    redis.call('HSET', P .. 'req:' .. ARGV[i], 'state', 'queued', 'worker', '')
    add_queued(req.model, req.priority, 1)
  end
end
redis.call('DEL', P .. 'worker:' .. worker, P .. 'inbox:' .. worker)
redis.call('SREM', P .. 'workers', worker)
return 1
