-- Events: what stands in blocks, in appends and in the bytes of segments, each behind a header of its own.

if not ... then return end

local fields = require("penstock.segment_fields")
local reading = require("penstock.reading")

local events = {}

local HEADER = 8
local LONGEST = 8 * 1024 * 1024 + HEADER
local MOST_SHOWN = 10000
local PADDING, PARTIAL_EVENT, EVENT = -1, -2, 0

-- Adds one event, of which the header stands at `at`.
function events.add(tree, tvb, at, length)
    if length == 0 then
        tree:add(fields.event_length, tvb(at + 4, 4))
        return
    end
    local range = tvb(at + HEADER, length)
    local item = tree:add(fields.event_data, range)
    if length <= 200 then
        local data = range:raw()
        if reading.printable(data) then item:append_text(" (" .. data .. ")") end
    end
    item:add(fields.event_length, tvb(at + 4, 4))
end

local function signed(a, b, c, d)
    local number = ((a * 256 + b) * 256 + c) * 256 + d
    return number >= 2147483648 and number - 4294967296 or number
end

-- The type and the length of what stands at a place of `data`, counted from 0; nil where no header can be there.
local function header(data, at)
    local a, b, c, d, e, f, g, h = data:byte(at + 1, at + HEADER)
    if h == nil then return nil end
    return signed(a, b, c, d), signed(e, f, g, h)
end

local function is_event(data, at)
    local kind, length = header(data, at)
    local fits = kind == EVENT and length >= 0 and length <= LONGEST and at + HEADER + length <= #data
    return fits, length
end

-- The wrapper at the end of an AppendBlock: Padding, or the beginning of an event. Gives the bytes of the latter.
local function add_wrapper(tree, tvb, start, data, at)
    local kind, length = header(data, at)
    if (kind ~= PADDING and kind ~= PARTIAL_EVENT) or length ~= #data - at - HEADER then return nil end
    if kind == PADDING then
        tree:add(fields.padding, tvb(start + at, #data - at), #data - at)
        return nil
    end
    if length == 0 then return "" end
    tree:add(fields.event_part, tvb(start + at + HEADER, length)):append_text(" (PartialEvent)")
    return data:sub(at + HEADER + 1)
end

-- Adds the events between two places, and the wrapper behind them; nothing where no event stands first, as in byte
-- streams. Gives the bytes of a PartialEvent.
function events.add_all(tree, tvb, start, stop, wrapped)
    local data = tvb(start, stop - start):raw()
    local fits, length = is_event(data, 0)
    if not fits then return wrapped and add_wrapper(tree, tvb, start, data, 0) or nil end
    local branch = tree:add(tvb(start, stop - start), "Events")
    local at, count = 0, 0
    while fits do
        count = count + 1
        if count <= MOST_SHOWN then events.add(branch, tvb, start + at, length) end
        at = at + HEADER + length
        fits, length = is_event(data, at)
    end
    branch:append_text(": " .. count .. (count > MOST_SHOWN and ", not all of them shown" or ""))
    if at == #data then return nil end
    local partial = wrapped and add_wrapper(branch, tvb, start, data, at) or nil
    local last = header(data, at)
    if not wrapped and (last == nil or last == EVENT) then
        branch:add(fields.event_part, tvb(start + at, stop - start - at))
    end
    return partial
end

return events
