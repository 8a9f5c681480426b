-- Return the time, after taking some of the sessions whose time to live has run out out of the indexes; the second number
-- is how many there were.

local now = server_time()
local ended = redis.call('ZRANGEBYSCORE', 'adj:ends', '-inf', now, 'LIMIT', 0, 100)
for _, row in ipairs(ended) do
  local left = redis.call('PTTL', row)
  if left > 0 then
    redis.call('ZADD', 'adj:ends', now + left / 1000, row)
  else
    redis.call('ZREM', 'adj:ends', row)
  end
  if left == -2 then
    local listed = string.sub(row, 1, -4) .. 'listed'
    leave_indexes(listed)
    redis.call('UNLINK', listed)
  end
end
return {string.format('%.17g', now), #ended}
