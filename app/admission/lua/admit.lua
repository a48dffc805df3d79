-- ARGV: v id model priority tenant task params image size cost timeout_ms reply traceparent result_ttl
--       events max_depth max_tenant_depth max_bytes max_tenant_bytes key price memory costly
--       [the key where the bytes are]
-- Returns {'admitted'}, {'open'} or {'answered', answer} for an id that is known already,
-- {'need-image'}, {'unknown-model'}, {'no-worker'}, {'tenant-queue-full' | 'queue-full', seconds}.
local v, id, model, priority, tenant, task, params, sha = unpack(ARGV, 1, 8)
local size, cost, timeout_ms = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local reply, traceparent, result_ttl = unpack(ARGV, 12, 14)
local events = ARGV[15]
local limits = {depth = tonumber(ARGV[16]), tenant_depth = tonumber(ARGV[17]),
                bytes = tonumber(ARGV[18]), tenant_bytes = tonumber(ARGV[19])}
local key, price, memory, costly = ARGV[20], tonumber(ARGV[21]), ARGV[22], ARGV[23] == '1'
local staged = ARGV[24]
local BEATING_MS = 1500 -- a worker is published for 3 s by each beat: this one may be three beats late
local TIMEOUT_SHARE = 0.7 -- of its time a request may be expected to wait; the rest is for the work
local now = now_ms()

-- The bytes are not needed.
local function without_bytes(...)
  if staged then
    redis.call('UNLINK', staged)
  end
  return {...}
end

local answer = redis.call('GET', P .. 'result:' .. id)
if answer then
  return without_bytes('answered', answer)
end
if redis.call('EXISTS', P .. 'req:' .. id) == 1 then
  return without_bytes('open')
end

local seen = redis.call('ZSCORE', P .. 'models', model)
if not seen or tonumber(seen) < now - MODEL_SEEN_MS then
  local others = redis.call('ZCOUNT', P .. 'models', int(now - MODEL_SEEN_MS), '+inf')
  return without_bytes(others > 0 and 'unknown-model' or 'no-worker')
end

sweep(now)
local image = P .. 'image:' .. tenant .. ':' .. sha
local stored = redis.call('EXISTS', image) == 1
local extra = redis.call('HEXISTS', P .. 'refs', tenant .. ':' .. sha) == 1 and 0 or size
local open = redis.call('HMGET', P .. 'open', 'depth', 'bytes', 'depth:' .. tenant, 'bytes:' .. tenant,
                        'price', 'price:' .. tenant)
for i = 1, 6 do
  open[i] = tonumber(open[i] or 0)
end
-- A request counts with its price where there are others.
local depth = open[1] > 0 and math.max(open[1], open[5]) or 0
local tenant_depth = open[3] > 0 and math.max(open[3], open[6]) or 0
local function full(kind, ms)
  count(kind)
  return without_bytes(kind, math.min(math.max(math.ceil((ms or 5000) / 1000), 1), 60))
end
local tenants = redis.call('LLEN', ring_key(model, priority))
if tenant_depth >= limits.tenant_depth or open[4] + extra > limits.tenant_bytes then
  return full('tenant-queue-full', time_for(rate_key(model), tenant_depth * math.max(tenants, 1)))
end
if depth >= limits.depth or open[2] + extra > limits.bytes then
  return full('queue-full', time_for(rate_key(model), depth))
end

-- Whoever cannot be answered in time hears so at once. Tenants take turns, so a quiet one waits for few; one that
-- floods is held back, which the rate of its own lane tells.
local lane = lane_key(model, priority, tenant)
local before_it, own_rate = waiting_in(lane), rate_key(model, priority, tenant)
local open_in_lane = redis.call('XLEN', lane)
local waiting = backlog(model, priority, nil, queued(model, priority))
local own_backlog = backlog(model, priority, tenant, before_it)
local turns = (open_in_lane - before_it + own_backlog) * tenants
local before = priority == 'batch' and backlog(model, 'interactive', nil, queued(model, 'interactive')) or 0
local wait = time_for(rate_key(model), before + math.min(waiting, turns)) or 0
local own_wait = time_for(own_rate, own_backlog) or 0
local own = tenants > 1 and (turns < waiting or own_wait > wait)
wait = math.max(wait, own_wait)
if wait > timeout_ms * TIMEOUT_SHARE then
  return full(own and 'tenant-queue-full' or 'queue-full', wait - timeout_ms * TIMEOUT_SHARE)
end
if not stored and not (staged and redis.call('EXISTS', staged) == 1) then
  return {'need-image'}
end

local keep_ms = timeout_ms + MODEL_SEEN_MS
if not stored then
  redis.call('RENAME', staged, image)
elseif staged then
  redis.call('UNLINK', staged)
end
if redis.call('PTTL', image) < keep_ms then
  redis.call('PEXPIRE', image, int(keep_ms))
end
redis.call('HINCRBY', P .. 'refs', tenant .. ':' .. sha, 1)
redis.call('HINCRBY', P .. 'asks', tenant .. ':' .. sha, 1)
if extra > 0 then
  redis.call('HSET', P .. 'counted', tenant .. ':' .. sha, int(extra))
end

-- The worker that waits for a request and has the most room for one like this, if any does. A costly picture is
-- for the workers to take, since they know how many they have.
local function idle_worker()
  while true do
    local worker = redis.call('ZRANGE', idle_key(v, model, priority), 0, 0, 'REV')[1]
    if worker then
      not_idle(v, model, worker)
    end
    if not worker or redis.call('PTTL', P .. 'worker:' .. worker) > BEATING_MS then
      return worker
    end
  end
end

local any_waiting = any_queued(model)
local worker = not costly and not any_waiting and before_it == 0 and idle_worker()
if not worker then
  if not any_waiting then
    begin_measure(rate_key(model), now)
  end
  if before_it == 0 and open_in_lane > 0 then
    begin_measure(own_rate, now)
  end
  add_queued(model, priority, tenant, price, 1)
end
if redis.call('EXISTS', lane) == 0 then
  redis.call('XGROUP', 'CREATE', lane, GROUP, '0', 'MKSTREAM')
  redis.call('RPUSH', ring_key(model, priority), tenant)
end
local deadline = now + timeout_ms
local entry = redis.call('XADD', lane, '*', 'v', v, 'id', id, 'tenant', tenant, 'model', model, 'task', task,
                         'params', params, 'image', sha, 'deadline_ms', int(deadline), 'traceparent', traceparent,
                         'events', events, 'price', int(price), 'memory', memory)
redis.call('HSET', P .. 'req:' .. id, 'model', model, 'priority', priority, 'tenant', tenant, 'lane', lane,
           'entry', entry, 'image', sha, 'cost', cost, 'reply', reply,
           'state', worker and 'taken' or 'queued', 'attempt', worker and 1 or 0, 'worker', worker or '',
           'result_ttl', result_ttl, 'key', key, 'price', int(price))
redis.call('ZADD', P .. 'deadlines', int(deadline), id)
add_open(tenant, 1, extra, price)
if worker then
  redis.call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', 1, 'STREAMS', lane, '>')
  tell_worker(worker, 'id', id, 'attempt', 1, 'admitted_ms', int(now), 'deadline_ms', int(deadline), 'tenant', tenant,
              'task', task, 'priority', priority, 'events', events, 'params', params, 'image', sha,
              'traceparent', traceparent, 'price', int(price), 'memory', memory)
else
  redis.call('XADD', P .. 'wake:' .. model, 'MAXLEN', 1, '*', 'id', id)
end
count('admitted:' .. priority)
return {'admitted'}
