-- What scripts share. A session's `listed` says where it stands in indexes, so that it can be taken out of them by those
-- who know nothing else of it: each field has a member, and the indexes that have it.

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- The time as people write it, in UTC: Redis has no function for that. Years are counted from March, in eras of 400.
local function readable(time)
  local days, seconds = math.floor(time / 86400) + 719468, math.floor(time % 86400)
  local era, day = math.floor(days / 146097), days % 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  day = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day + 2) / 153)
  day = day - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local hours, minutes = math.floor(seconds / 3600), math.floor(seconds % 3600 / 60)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02dZ', year, month, day, hours, minutes, seconds % 60)
end

-- The indexes that a field of `listed` names, each with the member; none if it cannot be read.
local function places_of(stored)
  local is_read, entry = pcall(cmsgpack.unpack, stored or '')
  local found = {}
  for place = 2, is_read and type(entry) == 'table' and #entry or 0 do
    found[tostring(entry[place])] = tostring(entry[1])
  end
  return found
end

-- Take a session out of the indexes. What is damaged there, too, is passed over, and dropped when it is met.
local function leave_indexes(listed)
  local fields = redis.pcall('HGETALL', listed)
  for place = 2, #fields, 2 do
    for index, member in pairs(places_of(fields[place])) do redis.pcall('ZREM', index, member) end
  end
end
