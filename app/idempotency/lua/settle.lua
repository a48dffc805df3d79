-- ARGV: token what [lease_ms | keep_ms answer]
-- For whoever claimed the key: 'renew' holds it for another while, 'keep' stores the answer, 'free' gives it up.
-- Returns 1, or 0 when the key is not this claim's any more.
local token, what = ARGV[1], ARGV[2]
if redis.call('HGET', KEYS[1], 'token') ~= token then
  return 0
end
if what == 'free' then
  redis.call('DEL', KEYS[1])
  return 1
end
if what == 'keep' then
  redis.call('HSET', KEYS[1], 'answer', ARGV[4])
  redis.call('HDEL', KEYS[1], 'token')
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
