create table users (
  -- autoincrement: an id is never given twice, not even after its user was deleted
  id integer primary key autoincrement, -- 5.4
  name text not null check (length(name) between 1 and 100),
  email text not null unique check (length(email) between 3 and 100), -- 4.10
  -- grows with every change; the entity tag of the HTTP API
  version integer not null default 1
) strict;
