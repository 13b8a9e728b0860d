// axum with tokio-postgres and jsonwebtoken: the service's routes as an experienced Rust programmer
// writes them. Statements are prepared once per connection. Requests are pipelined over the
// connections, so none waits for a free one. One thread, because the contestants have one core.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::sync::OnceCell;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

const TOKEN_LIFETIME_SECONDS: u64 = 3600;

static AUTH_USER: LazyLock<String> = LazyLock::new(|| env("AUTH_USER"));
static AUTH_PASSWORD: LazyLock<String> = LazyLock::new(|| env("AUTH_PASSWORD"));
static AUTH_NAME: LazyLock<String> = LazyLock::new(|| env("AUTH_NAME"));
static SIGNING: LazyLock<EncodingKey> =
    LazyLock::new(|| EncodingKey::from_secret(env("SIGNING_SECRET").as_bytes()));
static VERIFYING: LazyLock<DecodingKey> =
    LazyLock::new(|| DecodingKey::from_secret(env("SIGNING_SECRET").as_bytes()));
static HEADER: LazyLock<Header> = LazyLock::new(|| Header::new(Algorithm::HS256));
static VALIDATION: LazyLock<Validation> = LazyLock::new(|| {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.leeway = 0;
    validation
});
static NOTE: LazyLock<Bytes> = LazyLock::new(|| {
    let note = serde_json::json!({ "title": env("NOTE_TITLE"), "contents": env("NOTE_CONTENTS") });
    Bytes::from(note.to_string())
});

#[derive(Serialize)]
struct User {
    id: i32,
    name: String,
    email: String,
}

#[derive(Deserialize)]
struct Login {
    id: String,
    pw: String,
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    email: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    id: String,
    name: String,
    iat: u64,
    exp: u64,
}

/// A connection and its prepared statements.
struct Connection {
    client: Client,
    list: Statement,
    find: Statement,
    create: Statement,
    replace: Statement,
    change: Statement,
    remove: Statement,
}

/// Connects at the first use, because not every scenario has a database.
#[derive(Default)]
struct Pool {
    connections: OnceCell<Vec<Connection>>,
    turn: AtomicUsize,
}

type Store = State<&'static Pool>;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let pool: &'static Pool = Box::leak(Box::default());
    let app = Router::new()
        .route("/", get("Hello, World!\n"))
        .route("/token", post(post_token))
        .route("/notes", get(get_notes))
        .route("/protected", get(get_protected))
        .route("/users", get(list_users).post(create_user))
        .route(
            "/users/{id}",
            get(get_user)
                .put(put_user)
                .patch(patch_user)
                .delete(delete_user),
        )
        .with_state(pool);
    let port: u16 = env("PORT").parse().expect("PORT");
    let listener = tokio::net::TcpListener::bind(("::", port))
        .await
        .expect("bind");
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await.expect("serve");
}

async fn post_token(headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let is_form = headers.get(CONTENT_TYPE).is_some_and(|value| {
        value
            .as_bytes()
            .starts_with(b"application/x-www-form-urlencoded")
    });
    let login: Option<Login> = if is_form {
        serde_urlencoded::from_bytes(&body).ok()
    } else {
        serde_json::from_slice(&body).ok()
    };
    let login = login.ok_or(Refusal::BadRequest("Bad Request"))?;
    if !is_equal(&login.id, &AUTH_USER) || !is_equal(&login.pw, &AUTH_PASSWORD) {
        return Err(Refusal::Unauthorized("Bearer"));
    }
    let iat = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| Refusal::Internal)?
        .as_secs();
    let claims = Claims {
        id: login.id,
        name: AUTH_NAME.clone(),
        iat,
        exp: iat + TOKEN_LIFETIME_SECONDS,
    };
    let token = jsonwebtoken::encode(&HEADER, &claims, &SIGNING).map_err(|_| Refusal::Internal)?;
    #[derive(Serialize)]
    struct Token {
        token: String,
    }
    Ok(Json(Token { token }).into_response())
}

async fn get_notes(request: Request) -> Result<Response, Refusal> {
    let claims = authorization(&request)
        .and_then(|value| value.strip_prefix("Bearer "))
        .and_then(|token| jsonwebtoken::decode::<Claims>(token, &VERIFYING, &VALIDATION).ok())
        .ok_or(Refusal::Unauthorized("Bearer"))?
        .claims;
    if claims.id != *AUTH_USER || claims.name != *AUTH_NAME {
        return Err(Refusal::Unauthorized("Bearer"));
    }
    Ok(([(CONTENT_TYPE, "application/json")], NOTE.clone()).into_response())
}

async fn get_protected(request: Request) -> Result<&'static str, Refusal> {
    let pair = authorization(&request)
        .and_then(|value| value.strip_prefix("Basic "))
        .and_then(|text| BASE64_STANDARD.decode(text).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or(Refusal::Unauthorized("Basic"))?;
    let (name, password) = pair.split_once(':').ok_or(Refusal::Unauthorized("Basic"))?;
    if !is_equal(name, &AUTH_USER) || !is_equal(password, &AUTH_PASSWORD) {
        return Err(Refusal::Unauthorized("Basic"));
    }
    Ok("You are authorized.\n")
}

async fn list_users(State(pool): Store) -> Result<Json<Vec<User>>, Refusal> {
    let connection = pool.connection().await?;
    let rows = connection.client.query(&connection.list, &[]).await?;
    Ok(Json(rows.iter().map(User::from).collect()))
}

async fn create_user(State(pool): Store, body: Bytes) -> Result<Response, Refusal> {
    let change = read_change(&body, true)?;
    let connection = pool.connection().await?;
    let user = one(
        connection,
        &connection.create,
        &[&change.name, &change.email],
    )
    .await?;
    let location = format!("/users/{}", user.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(user)).into_response())
}

async fn get_user(State(pool): Store, Path(id): Path<String>) -> Result<Json<User>, Refusal> {
    let id = id_of(&id)?;
    let connection = pool.connection().await?;
    one(connection, &connection.find, &[&id]).await.map(Json)
}

async fn put_user(
    State(pool): Store,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<User>, Refusal> {
    let (id, change) = (id_of(&id)?, read_change(&body, true)?);
    let connection = pool.connection().await?;
    let values: [&(dyn ToSql + Sync); 3] = [&id, &change.name, &change.email];
    one(connection, &connection.replace, &values)
        .await
        .map(Json)
}

async fn patch_user(
    State(pool): Store,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<User>, Refusal> {
    let (id, change) = (id_of(&id)?, read_change(&body, false)?);
    let connection = pool.connection().await?;
    let values: [&(dyn ToSql + Sync); 3] = [&id, &change.name, &change.email];
    one(connection, &connection.change, &values).await.map(Json)
}

async fn delete_user(State(pool): Store, Path(id): Path<String>) -> Result<Json<User>, Refusal> {
    let id = id_of(&id)?;
    let connection = pool.connection().await?;
    one(connection, &connection.remove, &[&id]).await.map(Json)
}

impl Pool {
    /// Returns the connections in turn.
    async fn connection(&self) -> Result<&Connection, Refusal> {
        let connections = self.connections.get_or_try_init(connect_all).await?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok(&connections[turn % connections.len()])
    }
}

async fn connect_all() -> Result<Vec<Connection>, tokio_postgres::Error> {
    let mut connections = Vec::new();
    for _ in 0..env("POOL_SIZE").parse().expect("POOL_SIZE") {
        connections.push(connect().await?);
    }
    Ok(connections)
}

async fn connect() -> Result<Connection, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&env("DATABASE_URL"), NoTls).await?;
    tokio::spawn(connection);
    Ok(Connection {
        list: client
            .prepare("select id, name, email from users order by id")
            .await?,
        find: client
            .prepare("select id, name, email from users where id = $1")
            .await?,
        create: client
            .prepare("insert into users (name, email) values ($1, $2) returning id, name, email")
            .await?,
        replace: client
            .prepare(
                "update users set name = $2, email = $3
                 where id = $1 returning id, name, email",
            )
            .await?,
        change: client
            .prepare(
                "update users set name = coalesce($2, name), email = coalesce($3, email)
                 where id = $1 returning id, name, email",
            )
            .await?,
        remove: client
            .prepare("delete from users where id = $1 returning id, name, email")
            .await?,
        client,
    })
}

async fn one(
    connection: &Connection,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
) -> Result<User, Refusal> {
    let row = connection.client.query_opt(statement, values).await?;
    row.as_ref().map(User::from).ok_or(Refusal::NotFound)
}

impl From<&Row> for User {
    fn from(row: &Row) -> User {
        User {
            id: row.get(0),
            name: row.get(1),
            email: row.get(2),
        }
    }
}

fn id_of(text: &str) -> Result<i32, Refusal> {
    match text.parse() {
        Ok(id) if id > 0 => Ok(id),
        _ => Err(Refusal::NotFound),
    }
}

fn read_change(body: &[u8], is_whole: bool) -> Result<Change, Refusal> {
    let change: Change =
        serde_json::from_slice(body).map_err(|_| Refusal::BadRequest("Bad Request"))?;
    if is_whole && (change.name.is_none() || change.email.is_none()) {
        return Err(Refusal::BadRequest("name and email are needed"));
    }
    if change.name.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Refusal::BadRequest(
            "name is a string of 1 to 100 characters",
        ));
    }
    if change
        .email
        .as_deref()
        .is_some_and(|email| !is_email(email))
    {
        return Err(Refusal::BadRequest("email is an address"));
    }
    Ok(change)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= 100 && !text.contains('\0')
}

fn is_email(text: &str) -> bool {
    let is_allowed = |c: char| !c.is_whitespace() && !c.is_control();
    text.chars().count() <= 100
        && text.chars().all(is_allowed)
        && text.split_once('@').is_some_and(|(before, after)| {
            !before.is_empty() && !after.is_empty() && !after.contains('@')
        })
}

fn authorization(request: &Request) -> Option<&str> {
    request.headers().get(AUTHORIZATION)?.to_str().ok()
}

fn is_equal(given: &str, right: &str) -> bool {
    given.as_bytes().ct_eq(right.as_bytes()).into()
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

enum Refusal {
    BadRequest(&'static str),
    Unauthorized(&'static str),
    NotFound,
    Internal,
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(err: tokio_postgres::Error) -> Refusal {
        match err.code() {
            Some(&SqlState::UNIQUE_VIOLATION) => Refusal::BadRequest("email is taken"),
            _ => Refusal::Internal,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::BadRequest(reason) => (StatusCode::BAD_REQUEST, reason).into_response(),
            Refusal::Unauthorized(scheme) => {
                let challenge = [(WWW_AUTHENTICATE, scheme)];
                (StatusCode::UNAUTHORIZED, challenge, "Unauthorized").into_response()
            }
            Refusal::NotFound => (StatusCode::NOT_FOUND, "no such user").into_response(),
            Refusal::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error").into_response()
            }
        }
    }
}
