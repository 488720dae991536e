-- The fields of one message of the segment protocol, as the generated table has them.
--
-- A body is read with a cursor: {tvb, at, stop, version}. Where bytes are missing or wrong, the readers raise
-- {wrong = what, at = where}; what was read before stays in the tree.

if not ... then return end

local fields = require("penstock.segment_fields")
local reading = require("penstock.reading")
local tables = require("penstock.segment_tables")

local body = {}

local MOST_ITEMS = 10000 -- of one list, shown one by one

-- Stands for a tree where a body is read and not shown.
body.silent = {}
function body.silent:add() return self end
function body.silent:append_text() return self end
function body.silent:set_len() return self end

local function wrong(text, at)
    error({ wrong = text, at = at }, 0)
end

local function take(cursor, size)
    local left = cursor.stop - cursor.at
    if size > left then wrong(size .. " bytes are needed and " .. left .. " are left", cursor.at) end
    local range = size > 0 and cursor.tvb(cursor.at, size) or nil
    cursor.at = cursor.at + size
    return range
end

local function length_of(cursor, what)
    local at = cursor.at
    local length = take(cursor, 4):int()
    if length < 0 then wrong("a " .. what .. " of " .. length, at) end
    return length
end

-- Java's modified UTF-8 as UTF-8: NUL is c0 80, and a surrogate pair is two times three bytes.
local function utf8_of(bytes)
    if not bytes:find("[\192\237]") then return bytes end
    bytes = bytes:gsub("\192\128", "\0")
    return (bytes:gsub("\237([\160-\175])([\128-\191])\237([\176-\191])([\128-\191])", function(a, b, c, d)
        local high = (a:byte() - 160) * 64 + b:byte() - 128
        local low = (c:byte() - 176) * 64 + d:byte() - 128
        local point = 65536 + high * 1024 + low
        return string.char(240 + math.floor(point / 262144), 128 + math.floor(point / 4096) % 64,
            128 + math.floor(point / 64) % 64, 128 + point % 64)
    end))
end

local function read_text(longest)
    return function(cursor, tree, field)
        local at = cursor.at
        local length = take(cursor, 2):uint()
        if length > longest then wrong("a text of " .. length .. " bytes, at most " .. longest .. " may be", at) end
        local range = take(cursor, length)
        local text = utf8_of(range and range:raw() or "")
        if not reading.is_utf8(text) then wrong("text that is not UTF-8", at + 2) end
        local item = tree:add(field, cursor.tvb(at, 2 + length), reading.shown(text, 65535))
        return text, item
    end
end

local function read_number(size)
    return function(cursor, tree, field)
        local range = take(cursor, size)
        return size == 8 and range:int64() or size == 4 and range:int() or range:uint(), tree:add(field, range)
    end
end

-- Where the bytes are. Without any there is nothing to be shown.
local function add_bytes(cursor, tree, field, start, length)
    if length == 0 then return { start = start, length = 0 }, tree end
    local item = tree:add(field, cursor.tvb(start, length))
    if length <= 200 then
        local data = cursor.tvb(start, length):raw()
        if reading.printable(data) then item:append_text(" (" .. data .. ")") end
    end
    return { start = start, length = length }, item
end

local function read_bytes32(cursor, tree, field)
    local length = length_of(cursor, "length")
    local start = cursor.at
    take(cursor, length)
    return add_bytes(cursor, tree, field, start, length)
end

local function read_within(room)
    return function(cursor, tree, field)
        local at = cursor.at
        local total = length_of(cursor, "length")
        local part, item = read_bytes32(cursor, tree, field)
        if total ~= part.length + room then
            wrong(part.length .. " bytes in " .. total .. ", " .. part.length + room .. " were expected", at)
        end
        return part, item
    end
end

local readers = {
    i32 = read_number(4),
    i64 = read_number(8),
    u8 = read_number(1),
    name = read_text(tables.longest.name),
    str = read_text(65535),
    bytes32 = read_bytes32,
    value = read_within(4),
}

function readers.bool(cursor, tree, field)
    local range = take(cursor, 1)
    local value = range:uint() ~= 0
    return value, tree:add(field, range, value)
end

function readers.uuid(cursor, tree, field)
    local range = take(cursor, 16)
    return range:raw(), tree:add(field, range)
end

function readers.rest(cursor, tree, field)
    local start = cursor.at
    cursor.at = cursor.stop
    return add_bytes(cursor, tree, field, start, cursor.stop - start)
end

function readers.zeros(cursor, tree, field)
    local size = cursor.stop - cursor.at
    local range = take(cursor, size)
    return size, range and tree:add(field, range, Int64.new(size)) or tree:add(field, Int64.new(0))
end

function readers.event(cursor, tree, field)
    local at = cursor.at
    local kind = take(cursor, 4):int()
    if kind ~= 0 then wrong("message type " .. kind .. " where an Event (0) was expected", at) end
    return read_bytes32(cursor, tree, field)
end

local function at_path(path, name)
    if name == "" then return path end
    return path == "" and name or path .. "." .. name
end

local read

function readers.flags(cursor, tree, _, path)
    local range = take(cursor, 1)
    local bits = range:uint()
    tree:add(fields.by_path[path .. ".at_tail"], range, bits >= 128)
    return bits, tree:add(fields.by_path[path .. ".at_end"], range, bits % 128 >= 64)
end

function readers.key(cursor, tree, _, path)
    local part, item = read_within(12)(cursor, tree, fields.by_path[path .. ".key"])
    if part.length > 0 then read(cursor, item, { "version", "i64" }, path) end
    return part, item
end

function readers.items(cursor, tree, _, path, entry)
    for _, part in ipairs(entry.parts) do
        read(cursor, tree, part, path)
    end
end

function readers.list(cursor, tree, _, path, entry)
    local at = cursor.at
    local count = length_of(cursor, "count")
    if count > tables.longest.items then
        wrong("a list of " .. count .. ", at most " .. tables.longest.items .. " are allowed", at)
    end
    local branch = tree:add(cursor.tvb(at, 4), path .. ": " .. count)
    branch:add(fields.count, cursor.tvb(at, 4))
    for number = 1, count do
        local start = cursor.at
        if start >= cursor.stop then wrong("item " .. number .. " of " .. count .. " is not there", start) end
        if number == MOST_ITEMS + 1 then
            branch:add(cursor.tvb(start), "and " .. count - MOST_ITEMS .. " more that are not shown")
        end
        local shown = number <= MOST_ITEMS and branch or body.silent
        local group = entry.item[2] == "items" and shown:add(cursor.tvb(start, 1), "Item " .. number) or shown
        read(cursor, group, entry.item, path)
        if entry.item[2] == "items" then group:set_len(cursor.at - start) end
    end
    branch:set_len(cursor.at - at)
    return count, branch
end

-- Reads one entry of the table: gives its value, and adds it to the tree.
read = function(cursor, tree, entry, path)
    local name = at_path(path, entry[1])
    return readers[entry[2]](cursor, tree, fields.by_path[name], name, entry)
end

local SIZES = { i32 = 4, i64 = 8, u8 = 1, bool = 1, uuid = 16, flags = 1 }

-- Reads a body. Gives the values by name: numbers, texts, {start, length} of bytes. Raises {wrong, at}.
function body.read(cursor, tree, message, values)
    local entries = message.fields
    if message.before ~= nil and cursor.version < message.before then entries = message.older end
    for _, entry in ipairs(entries) do
        local left = cursor.stop - cursor.at
        if not (entry.tail and left < (SIZES[entry[2]] or 1)) then
            values[entry[1]] = read(cursor, tree, entry, "")
        end
    end
    if cursor.at < cursor.stop then
        tree:add(fields.surplus, cursor.tvb(cursor.at, cursor.stop - cursor.at))
    end
    return values
end

return body
