-- Try what the other scripts write with, on a key of no session: a right that is missing must be known before it is
-- missed in the middle of a write. The first who may write notes the layout of the keys.

local key = 'adj:check'
local tries = {
  {'SET', key, '1'}, {'INCR', key}, {'UNLINK', key},
  {'HSET', key, 'f', '1'}, {'HINCRBY', key, 'f', 1}, {'HDEL', key, 'f'},
  {'ZADD', key, 1, 'm'}, {'PEXPIRE', key, 1000}, {'ZREM', key, 'm'}, {'ZREMRANGEBYSCORE', key, 0, 1},
  {'RPUSH', key, 'm'}, {'UNLINK', key}, {'SADD', key, 'm'}, {'SMEMBERS', key}, {'UNLINK', key},
  {'TYPE', key}, {'EXISTS', key}, {'PTTL', key},
  {'GET', key}, {'HGET', key, 'f'}, {'HMGET', key, 'f'}, {'HGETALL', key}, {'HKEYS', key}, {'HEXISTS', key, 'f'},
  {'ZSCORE', key, 'm'}, {'ZRANGE', key, 0, 0}, {'ZRANGEBYSCORE', key, 0, 1}, {'LRANGE', key, 0, 0},
}
redis.call('UNLINK', key)
for _, command in ipairs(tries) do
  redis.call(unpack(command))
end
redis.call('SET', KEYS[1], ARGV[1], 'NX')
