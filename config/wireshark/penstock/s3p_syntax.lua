-- What S3P's bytes say, without Wireshark's tree: commands and replies of binary strings, with the places of all parts.
--
-- A part is {start, length, ...}, places counted from 0, as Wireshark does. Where bytes are missing or wrong, the
-- parsers raise a table: {missing = how many until the message ends, if that is known} or {wrong = what, at = where};
-- `message` catches them.

if not ... then return end

local tables = require("penstock.s3p_tables")

local syntax = {}

local LONGEST_HEADER = 32 -- `*<n>` or `$<n>` with its CRLF
local LONGEST_LINE = 4096 -- an error or simple string
local MOST_ELEMENTS = 2000000

local function wrong(text, at)
    error({ wrong = text, at = at }, 0)
end

local Source = {}
Source.__index = Source

-- The line at the current place without its CRLF.
function Source:line(longest)
    local stop = self.data:find("\r\n", self.at + 1, true)
    if stop == nil or stop - 1 - self.at > longest then
        if #self.data - self.at >= longest then wrong("a line of more than " .. longest .. " bytes", self.at) end
        if stop == nil then error({}, 0) end
    end
    local text = self.data:sub(self.at + 1, stop - 1)
    if text:find("[\r\n]") then wrong("a line that does not end with CRLF", self.at) end
    self.at = stop + 1
    return text
end

-- The number of a `*<n>` or `$<n>` line.
function Source:header(mark, what)
    local start = self.at
    local first = self.data:sub(start + 1, start + 1)
    if first == "" then error({}, 0) end
    if first ~= mark then wrong("'" .. mark .. "' was expected here, with " .. what, start) end
    local digits = self:line(LONGEST_HEADER):match("^.(%d+)$")
    if digits == nil or #digits > 20 then wrong("no number stands before " .. what, start) end
    return tonumber(digits)
end

-- A bulk string; `last`: the message ends with it.
function Source:bulk(what, last)
    local head = self.at
    local length = self:header("$", what)
    if length == 0 then wrong("an empty " .. what, head) end
    local start = self.at
    local missing = start + length + 2 - #self.data
    if missing > 0 then error({ missing = last and missing or nil }, 0) end
    if self.data:sub(start + length + 1, start + length + 2) ~= "\r\n" then
        wrong("CRLF was expected behind " .. what, start + length)
    end
    self.at = start + length + 2
    return { start = start, length = length, head = head }
end

function Source:word(what)
    local part = self:bulk(what)
    part.text = self.data:sub(part.start + 1, part.start + part.length)
    return part
end

local function bulks(source, what, add)
    local head = source.at
    local count = source:header("*", what .. "s")
    if count > MOST_ELEMENTS then wrong(count .. " " .. what .. "s", head) end
    for number = 1, count do
        add(source:bulk(what, number == count))
    end
    return count
end

local function options(source, command)
    local head = source.at
    local count = source:header("*", "options")
    if count % 2 == 1 then wrong("options are pairs of key and value, not " .. count .. " elements", head) end
    for _ = 1, count / 2 do
        local key = source:word("option key")
        if not tables.commands[command.command].options[key.text:upper()] then wrong("an unknown option", key.start) end
        command.options[#command.options + 1] = { key = key, value = source:word("option value") }
    end
end

-- Fills `command` as far as its bytes are there: what is known stays known where the rest is wrong.
local function parse_command(source, command)
    command.elements = source:header("*", "a command")
    if command.elements ~= 3 and command.elements ~= 4 then
        wrong("a command is an array of 3 or 4 elements, not " .. command.elements, command.at)
    end
    command.word = source:word("command name")
    local name = command.word.text:upper()
    local schema = tables.commands[name]
    if schema == nil then wrong("an unknown command", command.word.start) end
    command.command = name
    if schema.elements ~= command.elements then
        wrong(name .. " is an array of " .. schema.elements .. " elements, not " .. command.elements, command.at)
    end
    command.name = source:word("stream name")
    options(source, command)
    if schema.records then
        bulks(source, "record", function(part) command.records[#command.records + 1] = part end)
        if #command.records == 0 then wrong("no records", source.at) end
    end
end

local function parse_found(source, reply)
    reply.kind = "records"
    local head = source.at
    local count = source:header("*", "records")
    if count % 2 == 1 then wrong("identifiers and records are pairs, not " .. count .. " elements", head) end
    for number = 2, count, 2 do
        local id = source:word("identifier")
        local record = source:bulk("record", number == count)
        record.id = id
        reply.records[#reply.records + 1] = record
        if not id.text:match("^%d+%-%d+$") then wrong("no identifier", id.start) end
    end
end

local function parse_reply(source, reply)
    local kind = source.data:sub(source.at + 1, source.at + 1)
    if kind == "*" then
        parse_found(source, reply)
    elseif kind == "$" then
        reply.id = source:word("identifier")
        if not reply.id.text:match("^%d+%-%d+$") then wrong("no identifier", reply.id.start) end
        reply.kind = "id"
    elseif kind == "+" then
        if source:line(LONGEST_LINE) ~= "+OK" then wrong("a simple string other than OK", reply.at) end
        reply.kind = "ok"
    elseif kind == "-" then
        local code, text = source:line(LONGEST_LINE):match("^%-([A-Z0-9_]+) ?([\32-\126]*)$")
        if code == nil then wrong("an error that is not a code and printable ASCII", reply.at) end
        reply.kind, reply.code, reply.text = "error", code, text
    else
        wrong("a reply begins with one of + - $ *", reply.at)
    end
end

-- The message at a place of `data`: what it says, its length, and nil; or as far as it goes, nil and the problem.
function syntax.message(data, at, from_client)
    local source = setmetatable({ data = data, at = at }, Source)
    local found = { at = at, options = {}, records = {} }
    local fine, problem = pcall(from_client and parse_command or parse_reply, source, found)
    if fine then return found, source.at - at, nil end
    if type(problem) ~= "table" then error(problem, 0) end
    return found, nil, problem
end

return syntax
