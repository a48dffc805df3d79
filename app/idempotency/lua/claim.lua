-- ARGV: fingerprint token lease_ms
-- Returns {'claimed'}, {'running'}, {'mismatch'} or {'answered', answer}.
local fingerprint, answer = unpack(redis.call('HMGET', KEYS[1], 'fingerprint', 'answer'))
if not fingerprint then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'token', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'claimed'}
end
if fingerprint ~= ARGV[1] then
  return {'mismatch'}
end
if answer then
  return {'answered', answer}
end
return {'running'}
