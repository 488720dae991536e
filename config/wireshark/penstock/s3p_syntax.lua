-- What S3P's bytes say, without Wireshark's tree: commands and replies of binary strings, with the places of all parts.
--
-- A part is {start, length, ...}; places are counted from 0, the message's first byte. A parser is a coroutine: where
-- bytes are missing it yields, and goes on from the same place when there are more. Where bytes are wrong it raises
-- {wrong = what, at = where}.

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

-- More bytes are needed: their number until the message ends, if it is known.
local function wait(missing)
    coroutine.yield(missing)
end

-- The bytes of the message that are there.
function Source:held()
    return #self.data - self.base
end

function Source:bytes(start, length)
    return self.data:sub(self.base + start + 1, self.base + start + length)
end

-- The line at the current place without its CRLF.
function Source:line(longest)
    local stop
    while true do
        stop = self.data:find("\r\n", self.base + self.at + 1, true)
        stop = stop and stop - 1 - self.base
        if stop ~= nil and stop - self.at <= longest then break end
        if self:held() - self.at >= longest then wrong("a line of more than " .. longest .. " bytes", self.at) end
        wait()
    end
    local text = self:bytes(self.at, stop - self.at)
    if text:find("[\r\n]") then wrong("a line that does not end with CRLF", self.at) end
    self.at = stop + 2
    return text
end

-- The first byte of what comes next.
function Source:peek()
    while self:held() == self.at do
        wait()
    end
    return self:bytes(self.at, 1)
end

-- The number of a `*<n>` or `$<n>` line.
function Source:header(mark, what)
    local start = self.at
    if self:peek() ~= mark then wrong("'" .. mark .. "' was expected here, with " .. what, start) end
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
    local stop = start + length + 2
    while self:held() < stop do
        wait(last and stop - self:held())
    end
    if self:bytes(start + length, 2) ~= "\r\n" then wrong("CRLF was expected behind " .. what, start + length) end
    self.at = stop
    return { start = start, length = length, head = head }
end

function Source:word(what)
    local part = self:bulk(what)
    part.text = self:bytes(part.start, part.length)
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
        wrong("a command is an array of 3 or 4 elements, not " .. command.elements, 0)
    end
    command.word = source:word("command name")
    local name = command.word.text:upper()
    local schema = tables.commands[name]
    if schema == nil then wrong("an unknown command", command.word.start) end
    command.command = name
    if schema.elements ~= command.elements then
        wrong(name .. " is an array of " .. schema.elements .. " elements, not " .. command.elements, 0)
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
    local kind = source:peek()
    if kind == "*" then
        parse_found(source, reply)
    elseif kind == "$" then
        reply.id = source:word("identifier")
        if not reply.id.text:match("^%d+%-%d+$") then wrong("no identifier", reply.id.start) end
        reply.kind = "id"
    elseif kind == "+" then
        if source:line(LONGEST_LINE) ~= "+OK" then wrong("a simple string other than OK", 0) end
        reply.kind = "ok"
    elseif kind == "-" then
        local code, text = source:line(LONGEST_LINE):match("^%-([A-Z0-9_]+) ?([\32-\126]*)$")
        if code == nil then wrong("an error that is not a code and printable ASCII", 0) end
        reply.kind, reply.code, reply.text = "error", code, text
    else
        wrong("a reply begins with one of + - $ *", 0)
    end
end

-- A message that begins: `said` is filled as far as its bytes are there.
function syntax.begin(from_client)
    return {
        said = { options = {}, records = {} },
        source = setmetatable({ data = "", base = 0, at = 0 }, Source),
        parser = coroutine.create(from_client and parse_command or parse_reply),
    }
end

-- Goes on with a message that begins at a place of `data`, as far as its bytes are there. Gives its length; or nil and
-- how many bytes are missing (nil: unknown); or nil, nil and {wrong, at}.
function syntax.go_on(message, data, base)
    message.source.data, message.source.base = data, base
    local fine, problem = coroutine.resume(message.parser, message.source, message.said)
    message.source.data = ""
    if not fine then
        if type(problem) ~= "table" then error(problem, 0) end
        return nil, nil, problem
    end
    if coroutine.status(message.parser) == "dead" then return message.source.at end
    return nil, problem or nil
end

return syntax
