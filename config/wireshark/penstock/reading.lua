-- Values that Lua has no reader for: long decimal numbers, varints, text that may be anything.

if not ... then return end

local reading = {}

local MOST_SHOWN = 1024
local LARGEST = "18446744073709551615"

-- The number of 64 bits that decimal digits stand for; nil where they are none, or too large.
function reading.decimal(digits)
    if not digits:match("^%d+$") then return nil end
    digits = digits:gsub("^0+", "")
    if #digits > #LARGEST or (#digits == #LARGEST and digits > LARGEST) then return nil end
    local value = UInt64.new(0)
    for start = 1, #digits, 6 do
        local part = digits:sub(start, start + 5)
        value = value * UInt64.new(10 ^ #part) + UInt64.new(tonumber(part))
    end
    return value
end

-- A varint at a place of a binary string: its value as UInt64 and the place behind it; nil where it is cut or too long.
function reading.varint(data, at)
    local low, high, factor = 0, 0, 1
    for place = 0, 9 do
        local byte = data:byte(at + place)
        if byte == nil then return nil end
        local bits = byte % 128
        if place < 4 then
            low = low + bits * factor
        elseif place == 4 then -- four of its bits are in the lower half, three in the upper
            low = low + (bits % 16) * factor
            high = math.floor(bits / 16)
            factor = 8 / 128
        else
            high = high + bits * factor
        end
        factor = factor * 128
        if byte < 128 then
            return UInt64.new(low, high % 4294967296), at + place + 1
        end
    end
    return nil
end

local function is_utf8(bytes)
    local at = 1
    while at <= #bytes do
        local lead = bytes:byte(at)
        local more = lead < 0x80 and 0 or lead < 0xc2 and -1 or lead < 0xe0 and 1 or lead < 0xf0 and 2
            or lead < 0xf5 and 3 or -1
        if more < 0 then return false end
        local second = bytes:byte(at + 1) or 0
        if (lead == 0xe0 and second < 0xa0) or (lead == 0xed and second > 0x9f)
            or (lead == 0xf0 and second < 0x90) or (lead == 0xf4 and second > 0x8f) then
            return false
        end
        for place = at + 1, at + more do
            local byte = bytes:byte(place)
            if byte == nil or byte < 0x80 or byte > 0xbf then return false end
        end
        at = at + more + 1
    end
    return true
end

reading.is_utf8 = is_utf8

local function escape(character)
    return string.format("\\x%02x", character:byte())
end

-- Bytes as text: as they are where they are UTF-8 that can be printed, else with escapes like \x00.
function reading.shown(bytes, most)
    most = most or MOST_SHOWN
    local cut = #bytes > most
    if cut then bytes = bytes:sub(1, most) end
    local text
    if is_utf8(bytes) then
        text = bytes:gsub("[%c\127]", escape)
    else
        text = bytes:gsub("[^\32-\126]", escape)
    end
    return cut and text .. "..." or text
end

-- Whether bytes are short and can be read by people, so that they may stand in a line of the tree.
function reading.printable(bytes)
    return #bytes > 0 and #bytes <= 200 and not bytes:find("[%c\127]") and is_utf8(bytes)
end

-- A binary string as a Tvb of its own, shown as a tab of that name.
function reading.tvb(bytes, name)
    return ByteArray.new(bytes, true):tvb(name)
end

-- Seconds as Wireshark's kind of time.
function reading.time(seconds)
    local whole = math.floor(seconds)
    return NSTime.new(whole, math.floor((seconds - whole) * 1e9 + 0.5))
end

return reading
