-- The outbox: of each app a hash of its notices, and for each receiver a sorted set of their ids, by when they are due.
-- A notice is written with records (see apply.lua): how often it was taken, when it was written, and what it says.

local given = cmsgpack.unpack(ARGV[1])
local notices, names = given.index .. 'notices', given.index .. 'outbox'

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local now = given.now or server_time()

local function stamp(time)
  return string.format('%.6f', time)
end

local function read(id)
  return string.match(redis.call('HGET', notices, id) or '', '^(%d+) (.*)$')
end

if given.take then
  local found = {}
  for _, to in ipairs(given.take) do
    local key = names .. '/' .. to
    local due = redis.call('ZRANGEBYSCORE', key, '-inf', stamp(now), 'WITHSCORES', 'LIMIT', 0, given.limit)
    for position = 1, #due, 2 do
      table.insert(found, {key, due[position], tonumber(due[position + 1])})
    end
  end
  table.sort(found, function(one, other) return one[3] < other[3] end)
  local taken = {}
  for position = 1, math.min(#found, given.limit) do
    local key, id = found[position][1], found[position][2]
    local attempt, rest = read(id)
    if attempt then
      attempt = tonumber(attempt) + 1
      redis.call('HSET', notices, id, attempt .. ' ' .. rest)
      redis.call('ZADD', key, stamp(now + given.ttl), id)
      table.insert(taken, {id, attempt, rest})
    else
      redis.call('ZREM', key, id)
    end
  end
  return taken
end

if given.settle then
  local key = names .. '/' .. given.to
  local attempt = read(given.settle)
  if tonumber(attempt) ~= given.attempt then return 0 end
  if given.again then
    redis.call('ZADD', key, stamp(now + given.again), given.settle)
  else
    redis.call('ZREM', key, given.settle)
    redis.call('HDEL', notices, given.settle)
  end
  return 1
end

local gone = 0
for _, to in ipairs(redis.call('SMEMBERS', names)) do
  local key = names .. '/' .. to
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. stamp(now - given.age), 'LIMIT', 0, 1000)) do
    redis.call('ZREM', key, id)
    redis.call('HDEL', notices, id)
    gone = gone + 1
  end
end
return gone
