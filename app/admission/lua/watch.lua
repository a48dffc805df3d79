-- ARGV: reply id...
-- Ends late requests and tells how each id stands: '' while open, its answer, or false when Redis lost it.
sweep(now_ms())
redis.call('PEXPIRE', ARGV[1], REPLY_TTL_MS)
local standing = {}
for i = 2, #ARGV do
  if redis.call('EXISTS', P .. 'req:' .. ARGV[i]) == 1 then
    standing[i - 1] = ''
  else
    standing[i - 1] = redis.call('GET', P .. 'result:' .. ARGV[i])
  end
end
return standing
