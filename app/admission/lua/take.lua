-- ARGV: worker model rows batch_rows v flood flood_rows costly costly_price [tenant rows]...
-- Deficit round-robin over the tenants, interactive before batch. A tenant's turn adds QUANTUM phrases to
-- its deficit; a turn cut short for want of rows goes on at the next call. What a picture costs beyond an ordinary
-- one counts like so many phrases. A tenant of whose requests more than `flood`, by price, wait gets none while it
-- holds `flood_rows` of this worker, unless it is the only one; the pairs tell who holds how many. Of requests whose
-- price is `costly_price` or more, at most `costly` are taken.
-- Returns {now, 1 if more is waiting than was taken else 0, request...}, all of one priority; together they
-- cost at most `rows` phrases, or `batch_rows`, except that one request may pass it. When nothing waits the worker
-- does: the next request that there is room for is handed to it as it is admitted.
local worker, model, v = ARGV[1], ARGV[2], ARGV[5]
local flood, flood_rows = tonumber(ARGV[6]), tonumber(ARGV[7])
local room = {interactive = tonumber(ARGV[3]), batch = tonumber(ARGV[4])}
local costly, costly_price = tonumber(ARGV[8]), tonumber(ARGV[9])
local held = {}
for i = 10, #ARGV, 2 do
  held[ARGV[i]] = tonumber(ARGV[i + 1])
end
local rows
local QUANTUM = 4
local now = now_ms()
local taken = {}
sweep(now)

-- Looking before reading: an entry of another version must stay unclaimed.
local function peek(lane)
  local entry = redis.call('XRANGE', lane, '(' .. last_delivered(lane), '+', 'COUNT', 1)[1]
  local fields = entry and fields_of(entry)
  if fields and not is_request(fields) then
    drop_unreadable(lane, entry)
    return peek(lane)
  end
  if not fields or fields.v ~= v then
    return nil
  end
  local cost = redis.call('HGET', P .. 'req:' .. fields.id, 'cost')
  if not cost then -- evicted by a Redis that may evict
    redis.call('XDEL', lane, entry[1])
    return peek(lane)
  end
  return fields, tonumber(cost)
end

local function has_its_part(priority, tenant)
  if (held[tenant] or 0) < flood_rows or redis.call('LLEN', ring_key(model, priority)) == 1 then
    return false
  end
  return backlog(model, priority, tenant, waiting_in(lane_key(model, priority, tenant))) > flood
end

-- The tenant's next request and its phrases, unless it must wait for what this worker has already.
local function next_of(priority, tenant)
  if has_its_part(priority, tenant) then
    return nil
  end
  local fields, phrases = peek(lane_key(model, priority, tenant))
  if fields and costly <= 0 and price_of(fields) >= costly_price then
    return nil
  end
  return fields, phrases
end

-- Returns whether the tenant's turn is over.
local function serve(priority, turn, tenant)
  local lane = lane_key(model, priority, tenant)
  local deficit = tonumber(redis.call('HGET', turn, tenant) or 0)
  while true do
    local fields, phrases = next_of(priority, tenant)
    if not fields then
      redis.call('HSET', turn, tenant, 0)
      return true
    end
    local cost = phrases + price_of(fields) - 1
    if cost > deficit then
      redis.call('HSET', turn, tenant, deficit)
      return true
    end
    if rows <= 0 then
      redis.call('HSET', turn, tenant, deficit)
      return false
    end
    local entry = redis.call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', 1, 'STREAMS', lane, '>')[1][2][1]
    table.insert(taken, hand_over(now, worker, entry, fields))
    held[tenant] = (held[tenant] or 0) + cost
    deficit = deficit - cost
    rows = rows - phrases
    costly = costly - (price_of(fields) >= costly_price and 1 or 0)
  end
end

local function waiting(ring, priority)
  for _, tenant in ipairs(redis.call('LRANGE', ring, 0, -1)) do
    if next_of(priority, tenant) then
      return true
    end
  end
  return false
end

for _, priority in ipairs(PRIORITIES) do
  if #taken > 0 then
    break
  end
  rows = room[priority]
  local ring, turn = ring_key(model, priority), turn_key(model, priority)
  while rows > 0 and waiting(ring, priority) do
    for _ = 1, redis.call('LLEN', ring) do
      local tenant = redis.call('LINDEX', ring, 0)
      if redis.call('HGET', turn, '') ~= tenant then
        redis.call('HINCRBY', turn, tenant, QUANTUM)
        redis.call('HSET', turn, '', tenant)
      end
      if not serve(priority, turn, tenant) then
        break
      end
      redis.call('HDEL', turn, '')
      redis.call('LMOVE', ring, ring, 'LEFT', 'RIGHT')
    end
  end
end
local more = any_queued(model)
not_idle(v, model, worker)
if #taken == 0 and not more then
  for _, priority in ipairs(PRIORITIES) do
    if room[priority] > 0 then
      redis.call('ZADD', idle_key(v, model, priority), room[priority], worker)
      redis.call('PEXPIRE', idle_key(v, model, priority), MODEL_SEEN_MS)
    end
  end
end
return {now, more and 1 or 0, unpack(taken)}
