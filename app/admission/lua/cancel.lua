-- ARGV: id answer [outcome]
-- Returns 1, or 0 when the request has its final answer already.
local req = request(ARGV[1])
if not req then
  return 0
end
conclude_and_stop(ARGV[1], req, ARGV[2], ARGV[3] or 'cancelled')
return 1
