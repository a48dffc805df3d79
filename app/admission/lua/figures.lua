-- Returns {counts as name, number, ...}, {model, priority, waiting, taken, ms that the oldest waits}...
local now = now_ms()

local function oldest(lane)
  local entry = redis.call('XRANGE', lane, '(' .. last_delivered(lane), '+', 'COUNT', 1)[1]
  return entry and now - tonumber((string.match(entry[1], '^(%d+)'))) or 0
end

local found = {redis.call('HGETALL', P .. 'counts')}
for _, model in ipairs(redis.call('ZRANGE', P .. 'models', 0, -1)) do
  for _, priority in ipairs(PRIORITIES) do
    local waiting, taken, age = 0, 0, 0
    for _, tenant in ipairs(redis.call('LRANGE', ring_key(model, priority), 0, -1)) do
      local lane = lane_key(model, priority, tenant)
      local pending = redis.call('XPENDING', lane, GROUP)[1]
      taken = taken + pending
      waiting = waiting + redis.call('XLEN', lane) - pending
      age = math.max(age, oldest(lane))
    end
    table.insert(found, {model, priority, waiting, taken, math.max(age, 0)})
  end
end
return found
