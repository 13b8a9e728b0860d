-- the applied migrations; their table tells the service that the file is its own
create table notes_users_schema (
  version integer primary key,
  oldest_service integer not null,
  applied_at text not null default current_timestamp
) strict;

create table users (
  -- autoincrement: an id is never given twice, not even after its user was deleted
  id integer primary key autoincrement -- 5.4
    check (id between 1 and 9007199254740991), -- 5.10; exact in JSON and JavaScript
  -- length() ends at U+0000
  name text not null check (length(name) between 1 and 100 and instr(name, char(0)) = 0), -- 4.11
  email text not null unique -- 4.10
    check (length(email) between 3 and 100 and instr(email, char(0)) = 0) -- 4.11
    -- one @ between characters that are neither white space nor controls; 45 is -
    check (email glob '?*@?*' and email not glob '*@*@*')
    check (email not glob '*[^!-~]*' or -- visible ASCII needs no slower check
      email not glob '*[' || char(1, 45, 32, 127, 45, 160, 5760, 8192, 45, 8202, 8232, 8233, 8239, 8287, 12288) || ']*'),
  -- grows with every change; the entity tag of the HTTP API
  version integer not null default 1 check (version between 1 and 9007199254740991)
) strict;

-- other programs change users too, and most leave version alone; the service sets it itself
create trigger users_version after update of name, email on users
when new.version = old.version begin
  update users set version = version + 1 where id = new.id;
end;
