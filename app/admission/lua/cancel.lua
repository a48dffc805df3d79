-- ARGV: id answer
-- Returns 1, or 0 when the request has its final answer already.
local req = request(ARGV[1])
if not req then
  return 0
end
conclude_and_stop(ARGV[1], req, ARGV[2], 'cancelled')
return 1
