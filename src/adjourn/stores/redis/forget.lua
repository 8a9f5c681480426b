-- Remove entries of sessions that have run out from an index: the first key; the others are the rows of the sessions.

local gone = 0
for position, member in ipairs(ARGV) do
  if redis.call('EXISTS', KEYS[position + 1]) == 0 then
    gone = gone + redis.call('ZREM', KEYS[1], member)
  end
end
return gone
