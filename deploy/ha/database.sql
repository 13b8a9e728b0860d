-- Run on the primary.
create role notes login password 'PASSWORD' connection limit 150;
create database notes owner notes encoding 'UTF8' locale 'C' template template0;
