-- ARGV: v id model priority tenant task params image size cost timeout_ms reply traceparent result_ttl
--       events max_depth max_tenant_depth max_bytes max_tenant_bytes key [bytes]
-- Returns {'admitted'}, {'open'} or {'answered', answer} for an id that is known already,
-- {'need-image'}, {'unknown-model'}, {'no-worker'}, {'tenant-queue-full' | 'queue-full', seconds}.
local v, id, model, priority, tenant, task, params, sha = unpack(ARGV, 1, 8)
local size, cost, timeout_ms = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local reply, traceparent, result_ttl = unpack(ARGV, 12, 14)
local events = ARGV[15]
local limits = {depth = tonumber(ARGV[16]), tenant_depth = tonumber(ARGV[17]),
                bytes = tonumber(ARGV[18]), tenant_bytes = tonumber(ARGV[19])}
local key, bytes = ARGV[20], ARGV[21]
local now = now_ms()

local answer = redis.call('GET', P .. 'result:' .. id)
if answer then
  return {'answered', answer}
end
if redis.call('EXISTS', P .. 'req:' .. id) == 1 then
  return {'open'}
end

local seen = redis.call('ZSCORE', P .. 'models', model)
if not seen or tonumber(seen) < now - MODEL_SEEN_MS then
  local others = redis.call('ZCOUNT', P .. 'models', int(now - MODEL_SEEN_MS), '+inf')
  return {others > 0 and 'unknown-model' or 'no-worker'}
end

sweep(now)
local image = P .. 'image:' .. tenant .. ':' .. sha
local stored = redis.call('EXISTS', image) == 1
local extra = redis.call('HEXISTS', P .. 'refs', tenant .. ':' .. sha) == 1 and 0 or size
local open = redis.call('HMGET', P .. 'open', 'depth', 'bytes', 'depth:' .. tenant, 'bytes:' .. tenant)
for i = 1, 4 do
  open[i] = tonumber(open[i] or 0)
end
local function full(kind, backlog)
  count(kind)
  local rate = measure(now, 0)
  local seconds = rate > 0 and math.ceil(backlog / rate) or 5
  return {kind, math.min(math.max(seconds, 1), 60)}
end
if open[3] >= limits.tenant_depth or open[4] + extra > limits.tenant_bytes then
  return full('tenant-queue-full', open[3])
end
if open[1] >= limits.depth or open[2] + extra > limits.bytes then
  return full('queue-full', open[1])
end
if not stored and not bytes then
  return {'need-image'}
end

if not stored then
  redis.call('SET', image, bytes)
end
redis.call('HINCRBY', P .. 'refs', tenant .. ':' .. sha, 1)
local keep_ms = timeout_ms + MODEL_SEEN_MS
if redis.call('PTTL', image) < keep_ms then
  redis.call('PEXPIRE', image, keep_ms)
end

local lane = lane_key(model, priority, tenant)
if redis.call('EXISTS', lane) == 0 then
  redis.call('XGROUP', 'CREATE', lane, GROUP, '0', 'MKSTREAM')
  redis.call('RPUSH', ring_key(model, priority), tenant)
end
local deadline = now + timeout_ms
local entry = redis.call('XADD', lane, '*', 'v', v, 'id', id, 'tenant', tenant, 'model', model, 'task', task,
                         'params', params, 'image', sha, 'deadline_ms', int(deadline), 'traceparent', traceparent,
                         'events', events)
redis.call('HSET', P .. 'req:' .. id, 'model', model, 'priority', priority, 'tenant', tenant, 'lane', lane,
           'entry', entry, 'image', sha, 'size', size, 'cost', cost, 'reply', reply, 'state', 'queued', 'attempt', 0,
           'worker', '', 'result_ttl', result_ttl, 'key', key)
redis.call('ZADD', P .. 'deadlines', int(deadline), id)
add_open(tenant, 1, extra)
redis.call('XADD', P .. 'wake:' .. model, 'MAXLEN', 1, '*', 'id', id)
count('admitted:' .. priority)
return {'admitted'}
