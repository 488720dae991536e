-- Protobuf messages by a table of their fields. The name of a field in filters is its path from the outermost message.

if not ... then return end

local reading = require("penstock.reading")

local protobuf = {}

local MOST_SHOWN = 20000 -- fields of one message, with those inside it

local MAKERS = {
    uint64 = function(name, label) return ProtoField.uint64(name, label, base.DEC) end,
    string = function(name, label) return ProtoField.string(name, label) end,
    bytes = function(name, label) return ProtoField.bytes(name, label) end,
    message = function(name, label) return ProtoField.none(name, label) end,
}

-- Makes the fields of a message and of all inside it: path -> ProtoField, put into `fields`.
function protobuf.declare(tables, message, prefix, fields)
    for _, field in pairs(tables[message]) do
        local path = prefix .. "." .. field.name
        fields[path] = MAKERS[field.kind](path, field.name)
        if field.message ~= nil then protobuf.declare(tables, field.message, path, fields) end
    end
end

local function wrong(text, at)
    error({ wrong = text, at = at }, 0)
end

local FIXED = { [1] = 8, [5] = 4 }

-- The field at `at` of a message that ends before `stop`: its number, its wire type, its value (of a varint), and where
-- its bytes start and end.
local function next_field(data, at, stop)
    local tag, start = reading.varint(data, at)
    if tag == nil or start > stop then wrong("a tag that is cut", at - 1) end
    local number = tag:tonumber()
    local wire = number % 8
    number = math.floor(number / 8)
    local value, first, following
    if wire == 0 then
        value, following = reading.varint(data, start)
        first = start
    elseif wire == 2 then
        local size
        size, first = reading.varint(data, start)
        following = size and first + size:tonumber()
    elseif FIXED[wire] ~= nil then
        first, following = start, start + FIXED[wire]
    else
        wrong("wire type " .. wire, at - 1)
    end
    if following == nil or following > stop then wrong("a field that goes on past the end", start - 1) end
    return number, wire, value, first, following
end

local decode

local function add_field(place, tree, field, path, wire, value, start, stop)
    local tvb, base_at = place.tvb, place.base
    local range = stop > start and tvb(base_at + start - 1, stop - start) or nil
    if (field.kind == "uint64") ~= (wire == 0) or wire == 1 or wire == 5 then
        wrong(field.name .. " has wire type " .. wire, start - 1)
    end
    local proto_field = place.fields[path]
    if field.kind == "uint64" then
        tree:add(proto_field, range, value)
    elseif field.kind == "message" then
        local branch = range and tree:add(proto_field, range) or tree:add(proto_field)
        decode(place, branch, field.message, path, start, stop)
    elseif range == nil then
        if field.kind == "string" then tree:add(proto_field, "") end
    elseif field.kind == "string" then
        tree:add(proto_field, range, reading.shown(range:raw()))
    else
        local item = tree:add(proto_field, range)
        local text = place.data:sub(start, math.min(stop - 1, start + 200))
        if reading.printable(text) then item:append_text(" (" .. text .. ")") end
    end
end

decode = function(place, tree, message, path, at, stop)
    while at < stop do
        local number, wire, value, start, following = next_field(place.data, at, stop)
        local field = place.tables[message][number]
        place.shown = place.shown + 1
        if field ~= nil and place.shown <= MOST_SHOWN then
            local inner = path .. "." .. field.name
            add_field(place, tree, field, inner, wire, value, start, following)
            place.counts[inner] = (place.counts[inner] or 0) + 1
        end
        at = following
    end
end

-- Adds a message that takes all of `tvb(base, length)`. Gives how often each path was there. Raises {wrong, at}.
function protobuf.add(tables, fields, tree, tvb, base_at, length, message, path)
    local data = length > 0 and tvb(base_at, length):raw() or ""
    local place = { tables = tables, fields = fields, tvb = tvb, base = base_at, data = data, shown = 0, counts = {} }
    decode(place, tree, message, path, 1, #data + 1)
    if place.shown > MOST_SHOWN then tree:append_text(", not all of it shown") end
    return place.counts
end

-- Whether a message has a field with this number. False for bytes that are no message.
function protobuf.has(data, wanted)
    local at = 1
    while at <= #data do
        local fine, number, _, _, _, following = pcall(next_field, data, at, #data + 1)
        if not fine then return false end
        if number == wanted then return true end
        at = following
    end
    return false
end

return protobuf
