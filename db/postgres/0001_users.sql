-- the applied migrations; their table tells the service which schema is its own
create table notes_users_schema (
  version integer primary key,
  oldest_service integer not null,
  applied_at timestamptz not null default now()
);

create table users (
  -- an identity's sequence never gives an id twice, not even after its user was deleted
  id bigint generated always as identity primary key -- 5.4
    check (id between 1 and 9007199254740991), -- 5.10; exact in JSON and JavaScript
  name text not null check (char_length(name) between 1 and 100), -- 4.11
  -- collate "C": compared byte by byte, exactly
  email text collate "C" not null unique -- 4.10
    check (char_length(email) between 3 and 100) -- 4.11
    -- one @ between characters that are neither white space nor controls
    check (email ~ '^[^@]+@[^@]+$')
    check (email !~ '[\u0001-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'),
  -- grows with every change; the entity tag of the HTTP API
  version bigint not null default 1 check (version between 1 and 9007199254740991)
);
