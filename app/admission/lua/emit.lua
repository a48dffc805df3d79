-- ARGV: worker id attempt seq event...
-- Returns 1, or 0 when this attempt is not the current one any more.
local worker, id, attempt, seq = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local req = held_by(id, worker, attempt)
if not req then
  return 0
end
for i = 5, #ARGV do
  redis.call('XADD', req.reply, 'MAXLEN', '~', REPLY_LENGTH, '*',
             'id', id, 'attempt', attempt, 'seq', int(seq + i - 5), 'event', ARGV[i])
end
redis.call('PEXPIRE', req.reply, REPLY_TTL_MS)
return 1
