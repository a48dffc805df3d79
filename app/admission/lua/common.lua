-- Stands before every script. KEYS[1] is the prefix `pb1:{namespace}:`; the braces put every key of a
-- namespace into one cluster slot, so the names below may be built here.
--
--   q:MODEL:PRIORITY:TENANT    stream, the lane: v id tenant model task params image deadline_ms traceparent
--                              events price memory
--   ring:MODEL:PRIORITY        list of the tenants that have a lane; turn:... their deficits
--   req:ID                     hash, exists while the request has no final answer
--   result:ID                  the final answer, with a TTL
--   image:TENANT:SHA256        the bytes, with a TTL beyond every deadline that needs them
--   staged:ID                  bytes that were sent right before their request
--   refs                       hash: TENANT:SHA256 -> how many open requests and handles need those bytes
--   asks                       the same of requests alone
--   counted                    hash: TENANT:SHA256 -> bytes in `open`, until the last request for them has ended
--   deadlines                  sorted set of the ids above
--   open                       hash: depth, bytes and price, of all tenants and of each
--   reply:API                  stream, events for one API process: id attempt seq event
--   inbox:WORKER  wake:MODEL   streams: requests for this worker, and what to cancel; that something was admitted
--   idle:V:MODEL:PRIORITY      sorted set: workers that wait for a request, by the phrases that they have room for
--   ward:MODEL                 the busy worker that empties itself to run lost requests alone
--   worker:ID  workers  models registry
--   waiting  rate:MODEL        hashes: requests that no worker has, by MODEL:PRIORITY; prices answered and in how long
--   backlog                    hash: price of the requests that no worker has, by MODEL:PRIORITY and by lane
--   rate:MODEL:PRIORITY:TENANT the same of one lane
--   usage:TENANT counts      counts of final answers, of a tenant (for some days) and of all; `counts` also of
--                            admissions
--   used:DAY                 hash, KEY:WHAT -> count, of the final answers to requests that came with a key

local P = KEYS[1]
local GROUP = 'workers'
local PRIORITIES = {'interactive', 'batch'}
local REPLY_LENGTH = 20000 -- a reader that falls further behind reads the final answers from result:ID
local REPLY_TTL_MS = 120000
local RATE_MS = 10000 -- time constant of the measured rate
local USED_TTL_MS = 3 * 86400000 -- the API copies the counts of a day into the database long before
local IDLE_MS = 10000 -- a longer pause between answers says nothing about how fast they come
local MODEL_SEEN_MS = 60000 -- a model stays known this long after its last worker's heartbeat
local DEADLINE_GRACE_MS = 2000 -- the engine ends a running request itself, keeping what it found

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function int(number)
  return string.format('%.0f', number)
end

-- What its picture costs a request, in units of an ordinary one; 1 for entries of versions without prices.
local function price_of(fields)
  return math.max(tonumber(fields.price or 1), 1)
end

local function lane_key(model, priority, tenant)
  return P .. 'q:' .. model .. ':' .. priority .. ':' .. tenant
end

local function ring_key(model, priority)
  return P .. 'ring:' .. model .. ':' .. priority
end

local function turn_key(model, priority)
  return P .. 'turn:' .. model .. ':' .. priority
end

local function idle_key(v, model, priority)
  return P .. 'idle:' .. v .. ':' .. model .. ':' .. priority
end

-- From now on nothing is handed to this worker that it does not ask for.
local function not_idle(v, model, worker)
  for _, priority in ipairs(PRIORITIES) do
    redis.call('ZREM', idle_key(v, model, priority), worker)
  end
end

local function fields_of(entry)
  local fields = {}
  for i = 1, #entry[2], 2 do
    fields[entry[2][i]] = entry[2][i + 1]
  end
  return fields
end

-- Whether an entry of a lane is a request, of whatever version.
local function is_request(fields)
  return fields.v and fields.id
end

local function drop_unreadable(lane, entry)
  redis.call('XACK', lane, GROUP, entry[1])
  redis.call('XDEL', lane, entry[1])
  redis.call('HINCRBY', P .. 'counts', 'unreadable', 1)
end

local function request(id)
  local names = {'model', 'priority', 'tenant', 'lane', 'entry', 'image', 'cost', 'reply', 'state',
                 'attempt', 'worker', 'result_ttl', 'key', 'price'}
  local values = redis.call('HMGET', P .. 'req:' .. id, unpack(names))
  if not values[1] then
    return nil
  end
  local req = {}
  for i, name in ipairs(names) do
    req[name] = values[i]
  end
  req.price = req.price or '1'
  return req
end

local function held_by(id, worker, attempt)
  local req = request(id)
  if req and req.state == 'taken' and req.worker == worker and req.attempt == attempt then
    return req
  end
  return nil
end

-- The price is reset with the depth: processes of versions without prices may have ended some of the requests.
local function add_open(tenant, depth, bytes, price)
  if redis.call('HINCRBY', P .. 'open', 'depth', depth) > 0 then
    redis.call('HINCRBY', P .. 'open', 'bytes', bytes)
    redis.call('HINCRBY', P .. 'open', 'price', price)
  else
    redis.call('HSET', P .. 'open', 'bytes', 0)
    redis.call('HDEL', P .. 'open', 'price')
  end
  local left = redis.call('HINCRBY', P .. 'open', 'depth:' .. tenant, depth)
  redis.call('HINCRBY', P .. 'open', 'bytes:' .. tenant, bytes)
  redis.call('HINCRBY', P .. 'open', 'price:' .. tenant, price)
  if left <= 0 then
    redis.call('HDEL', P .. 'open', 'depth:' .. tenant, 'bytes:' .. tenant, 'price:' .. tenant)
  end
end

-- Returns the bytes that no request needs any more, if they count: those of a handle do not.
local function release_image(req)
  local name = req.tenant .. ':' .. req.image
  if redis.call('HINCRBY', P .. 'refs', name, -1) <= 0 then
    redis.call('HDEL', P .. 'refs', name)
    redis.call('UNLINK', P .. 'image:' .. name)
  end
  if redis.call('HINCRBY', P .. 'asks', name, -1) > 0 then
    return 0
  end
  local counted = redis.call('HGET', P .. 'counted', name)
  redis.call('HDEL', P .. 'asks', name)
  redis.call('HDEL', P .. 'counted', name)
  return tonumber(counted or 0)
end

local function leave_lane(req)
  redis.call('XACK', req.lane, GROUP, req.entry)
  redis.call('XDEL', req.lane, req.entry)
  if redis.call('XLEN', req.lane) == 0 then
    redis.call('DEL', req.lane)
    redis.call('HDEL', P .. 'backlog', req.model .. ':' .. req.priority .. ':' .. req.tenant)
    redis.call('LREM', ring_key(req.model, req.priority), 1, req.tenant)
    redis.call('HDEL', turn_key(req.model, req.priority), req.tenant)
    if redis.call('EXISTS', ring_key(req.model, req.priority)) == 0 then
      redis.call('DEL', turn_key(req.model, req.priority))
      redis.call('HDEL', P .. 'waiting', req.model .. ':' .. req.priority) -- was 0, unless Redis evicted a request
    end
  end
end

-- How many requests of a model no worker has.
local function queued(model, priority)
  return tonumber(redis.call('HGET', P .. 'waiting', model .. ':' .. priority) or 0)
end

-- Goes with every change of a request's state to or from 'queued'; `change` is 1 or -1.
local function add_queued(model, priority, tenant, price, change)
  local name = model .. ':' .. priority
  redis.call('HINCRBY', P .. 'waiting', name, change)
  redis.call('HINCRBY', P .. 'backlog', name, change * price)
  redis.call('HINCRBY', P .. 'backlog', name .. ':' .. tenant, change * price)
end

-- The price of `requests` that wait, in one lane or, without `tenant`, in all. Corrects what processes of versions
-- without prices left behind.
local function backlog(model, priority, tenant, requests)
  local name = model .. ':' .. priority .. (tenant and ':' .. tenant or '')
  if requests <= 0 then
    redis.call('HDEL', P .. 'backlog', name)
    return 0
  end
  return math.max(tonumber(redis.call('HGET', P .. 'backlog', name) or 0), requests)
end

local function any_queued(model)
  return queued(model, 'interactive') + queued(model, 'batch') > 0
end

local function waiting_in(lane)
  local there = redis.call('XLEN', lane)
  return there > 0 and there - redis.call('XPENDING', lane, GROUP)[1] or 0
end

local function rate_key(model, priority, tenant)
  return P .. 'rate:' .. model .. (tenant and ':' .. priority .. ':' .. tenant or '')
end

-- Answers are counted while requests wait, over the time in which they do, both with exponentially falling
-- weight: how fast a model answers cannot be seen while it has too little to do. So are those of each lane.
-- An answer counts with its price.
local function measure(key, now, price)
  local rate = redis.call('HMGET', key, 'count', 'ms', 'at')
  local passed = math.max(0, math.min(now - tonumber(rate[3] or now), IDLE_MS)) -- its clock may be set back
  local left = math.exp(-passed / RATE_MS)
  local count, ms = tonumber(rate[1] or 0) * left + price, tonumber(rate[2] or 0) * left + passed
  redis.call('HSET', key, 'count', string.format('%.6f', count), 'ms', string.format('%.3f', ms), 'at', int(now))
  redis.call('PEXPIRE', key, RATE_MS * 60)
end

-- Requests begin to wait: the time until now says nothing.
local function begin_measure(key, now)
  redis.call('HSET', key, 'at', int(now))
  redis.call('PEXPIRE', key, RATE_MS * 60)
end

-- Milliseconds that requests of this price together take; nil while that is not known.
local function time_for(key, price)
  if price == 0 then
    return 0
  end
  local rate = redis.call('HMGET', key, 'count', 'ms')
  local count, ms = tonumber(rate[1] or 0), tonumber(rate[2] or 0)
  if count < 3 or ms < 100 then
    return nil
  end
  return price * ms / count
end

local function count(what)
  redis.call('HINCRBY', P .. 'counts', what, 1)
end

-- `since` tells this count of a day from the one of a Redis that lost it.
local function count_for_key(id, req, answer, outcome)
  local used = P .. 'used:' .. math.floor(now_ms() / 86400000)
  local numbers = {[outcome] = 1, phrases = tonumber(req.cost)}
  if outcome == 'completed' then
    local metrics = cmsgpack.unpack(answer).metrics
    numbers.input_tokens, numbers.output_tokens = metrics.input_tokens, metrics.output_tokens
  end
  redis.call('HSETNX', used, 'since', id)
  for what, number in pairs(numbers) do
    redis.call('HINCRBY', used, req.key .. ':' .. what, int(number))
  end
  redis.call('PEXPIRE', used, USED_TTL_MS)
end

-- The only way a request ends: whoever comes first removes req:ID, so there is one final answer.
local function conclude(id, req, answer, outcome)
  redis.call('DEL', P .. 'req:' .. id)
  if req.state == 'queued' then
    add_queued(req.model, req.priority, req.tenant, req.price, -1)
  end
  redis.call('SET', P .. 'result:' .. id, answer, 'PX', req.result_ttl)
  redis.call('XADD', req.reply, 'MAXLEN', '~', REPLY_LENGTH, '*',
             'id', id, 'attempt', req.attempt, 'seq', '', 'event', answer)
  redis.call('PEXPIRE', req.reply, REPLY_TTL_MS)
  redis.call('ZREM', P .. 'deadlines', id)
  leave_lane(req)
  add_open(req.tenant, -1, -release_image(req), -req.price)
  redis.call('HINCRBY', P .. 'usage:' .. req.tenant, outcome, 1)
  redis.call('PEXPIRE', P .. 'usage:' .. req.tenant, USED_TTL_MS)
  count(outcome)
  if req.key ~= '' then
    count_for_key(id, req, answer, outcome)
  end
end

local function tell_worker(worker, ...)
  local inbox = P .. 'inbox:' .. worker
  redis.call('XADD', inbox, 'MAXLEN', '~', REPLY_LENGTH, '*', ...)
  redis.call('PEXPIRE', inbox, REPLY_TTL_MS)
end

local function conclude_and_stop(id, req, answer, outcome)
  conclude(id, req, answer, outcome)
  if req.state == 'taken' then
    tell_worker(req.worker, 'id', id, 'attempt', req.attempt)
  end
end

local function failure(problem, detail)
  return cmsgpack.pack({type = 'error', problem = problem, detail = detail})
end

local function expire(id, req)
  conclude_and_stop(id, req, failure('deadline-exceeded', 'The request was not answered in time.'), 'expired')
end

local function sweep(now)
  local late = redis.call('ZRANGE', P .. 'deadlines', '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 200, 'WITHSCORES')
  for i = 1, #late, 2 do
    local req = request(late[i])
    if not req then
      redis.call('ZREM', P .. 'deadlines', late[i])
    elseif req.state ~= 'taken' or tonumber(late[i + 1]) + DEADLINE_GRACE_MS <= now then
      expire(late[i], req)
    end
  end
end

-- Marks the request as this worker's and returns what the worker needs.
local function hand_over(now, worker, entry, fields)
  local key = P .. 'req:' .. fields.id
  local attempt = redis.call('HINCRBY', key, 'attempt', 1)
  local state, priority = unpack(redis.call('HMGET', key, 'state', 'priority'))
  if state == 'queued' then
    add_queued(fields.model, priority, fields.tenant, price_of(fields), -1)
  end
  redis.call('HSET', key, 'state', 'taken', 'worker', worker)
  return {fields.id, attempt, tonumber((string.match(entry[1], '^(%d+)'))), tonumber(fields.deadline_ms),
          fields.tenant, fields.task, priority, fields.events or '1', fields.params,
          fields.image, fields.traceparent, price_of(fields), tonumber(fields.memory or 0)}
end

-- The first request of a lane whose worker has been silent for `lease` ms: entry, fields, deliveries so far.
-- XPENDING, since XAUTOCLAIM tells no delivery counts and takes entries of other versions.
local function first_lost(lane, lease, v)
  local after = '-'
  while true do
    local pending = redis.call('XPENDING', lane, GROUP, 'IDLE', lease, after, '+', 1)[1]
    if not pending then
      return nil
    end
    local entry = redis.call('XRANGE', lane, pending[1], pending[1])[1]
    local fields = entry and fields_of(entry)
    if fields and not is_request(fields) then
      drop_unreadable(lane, entry)
    elseif not fields or redis.call('EXISTS', P .. 'req:' .. fields.id) == 0 then -- a Redis that evicts
      redis.call('XACK', lane, GROUP, pending[1])
      redis.call('XDEL', lane, pending[1])
    elseif fields.v == v then
      return entry, fields, pending[4]
    end
    after = '(' .. pending[1]
  end
end

local function last_delivered(lane)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', lane)) do
    local named = {}
    for i = 1, #group, 2 do
      named[group[i]] = group[i + 1]
    end
    if named['name'] == GROUP then
      return named['last-delivered-id']
    end
  end
end

local function lanes(model)
  local all = {}
  for _, priority in ipairs(PRIORITIES) do
    for _, tenant in ipairs(redis.call('LRANGE', ring_key(model, priority), 0, -1)) do
      table.insert(all, lane_key(model, priority, tenant))
    end
  end
  return all
end
