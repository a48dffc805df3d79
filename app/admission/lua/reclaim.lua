-- ARGV: worker model lease_ms v
-- Claims one request whose worker is gone, to run alone. One that was lost while it ran alone ends here.
-- Returns {now} or {now, request}; nothing while the worker holds another, which it may not have heard of yet.
local worker, model, lease, v = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local CRASHED = failure('worker-crashed', 'The worker ended twice while it worked on this request.')
local now = now_ms()
sweep(now)
not_idle(v, model, worker)

for _, lane in ipairs(lanes(model)) do
  for _, pending in ipairs(redis.call('XPENDING', lane, GROUP, '-', '+', 1000, worker)) do
    if pending[3] < tonumber(lease) then
      return {now}
    end
  end
end
for _, lane in ipairs(lanes(model)) do
  while redis.call('EXISTS', lane) == 1 do
    local entry, fields, deliveries = first_lost(lane, lease, v)
    if not entry then
      break
    end
    if deliveries < 2 then
      redis.call('XCLAIM', lane, GROUP, worker, lease, entry[1])
      return {now, hand_over(now, worker, entry, fields)}
    end
    conclude(fields.id, request(fields.id), CRASHED, 'crashed')
  end
end
return {now}
