-- ARGV: worker id attempt answer outcome
-- Returns 1, or 0 when this attempt is not the current one any more.
local worker, id, attempt, answer, outcome = unpack(ARGV)
local req = held_by(id, worker, attempt)
if not req then
  return 0
end
if any_queued(req.model) then
  measure(rate_key(req.model), now_ms(), req.price)
end
if waiting_in(req.lane) > 0 then
  measure(rate_key(req.model, req.priority, req.tenant), now_ms(), req.price)
end
conclude(id, req, answer, outcome)
return 1
