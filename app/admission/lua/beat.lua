-- ARGV: worker info ttl_ms model lease_ms v [id attempt]...
-- Publishes the worker, keeps its requests its own, ends late ones.
-- Returns {1 if a dead worker left a request that is for this worker to run alone, else 0,
--          [id of ours that is not ours any more]...}.
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

-- An idle worker may run it at once; of the busy ones a single one empties itself for it.
local function for_us()
  if #ARGV == 6 then
    return true
  end
  local ward = P .. 'ward:' .. model
  redis.call('SET', ward, worker, 'NX', 'PX', lease)
  if redis.call('GET', ward) ~= worker then
    return false
  end
  redis.call('PEXPIRE', ward, lease)
  return true
end

local lost = false
for _, lane in ipairs(lanes(model)) do
  lost = lost or first_lost(lane, lease, v)
end
lost = lost and for_us()
if lost then
  not_idle(v, model, worker)
end
return {lost and 1 or 0, unpack(gone)}
