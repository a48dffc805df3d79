-- ARGV: reply read id...
-- Drops the replies up to `read`, ends late requests and tells how each id stands: '' while open, its answer, or false when Redis lost it.
sweep(now_ms())
redis.call('XTRIM', ARGV[1], 'MINID', ARGV[2])
redis.call('XDEL', ARGV[1], ARGV[2])
redis.call('PEXPIRE', ARGV[1], REPLY_TTL_MS)
local standing = {}
for i = 3, #ARGV do
  if redis.call('EXISTS', P .. 'req:' .. ARGV[i]) == 1 then
    standing[i - 2] = ''
  else
    standing[i - 2] = redis.call('GET', P .. 'result:' .. ARGV[i])
  end
end
return standing
