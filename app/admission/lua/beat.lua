-- ARGV: worker info ttl_ms model lease_ms v [id attempt]...
-- Publishes the worker, keeps its requests its own, ends late ones.
-- Returns {1 if a dead worker left a request, else 0, [id of ours that is not ours any more]...}.
local worker, info, ttl, model, lease, v = unpack(ARGV, 1, 6)
local now = now_ms()
redis.call('SET', P .. 'worker:' .. worker, info, 'PX', ttl)
redis.call('SADD', P .. 'workers', worker)
redis.call('ZADD', P .. 'models', int(now), model)
redis.call('ZREMRANGEBYSCORE', P .. 'models', '-inf', int(now - MODEL_SEEN_MS))

sweep(now)
local gone = {}
for i = 7, #ARGV, 2 do
  local req = held_by(ARGV[i], worker, ARGV[i + 1])
  if req then
    redis.call('XCLAIM', req.lane, GROUP, worker, 0, req.entry, 'JUSTID')
  else
    table.insert(gone, ARGV[i])
  end
end

local lost = 0
for _, lane in ipairs(lanes(model)) do
  if first_lost(lane, lease, v) then
    lost = 1
    break
  end
end
return {lost, unpack(gone)}
