// net/http with pgx and golang-jwt: the measured routes as an experienced Go programmer writes
// them. pgx prepares each statement once per connection.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	bodyLimitBytes  = 100 << 10
	uniqueViolation = "23505"
	tokenLifetime   = time.Hour
)

var (
	authUser     = os.Getenv("AUTH_USER")
	authPassword = os.Getenv("AUTH_PASSWORD")
	authName     = os.Getenv("AUTH_NAME")
	secret       = []byte(os.Getenv("SIGNING_SECRET"))
	parser       = jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	pool         *pgxpool.Pool
	note, _      = json.Marshal(map[string]string{
		"title":    os.Getenv("NOTE_TITLE"),
		"contents": os.Getenv("NOTE_CONTENTS"),
	})
)

type user struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

type change struct {
	Name  *string `json:"name"`
	Email *string `json:"email"`
}

type claims struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	jwt.RegisteredClaims
}

func main() {
	// Not every scenario has a Postgres.
	if url := os.Getenv("DATABASE_URL"); strings.HasPrefix(url, "postgres:") {
		pool = newPool(url)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		writeText(w, http.StatusOK, "Hello, World!\n")
	})
	mux.HandleFunc("POST /token", postToken)
	mux.HandleFunc("GET /notes", getNotes)
	mux.HandleFunc("GET /users", listUsers)
	mux.HandleFunc("POST /users", createUser)
	mux.HandleFunc("GET /users/{id}", getUser)
	mux.HandleFunc("PATCH /users/{id}", patchUser)
	mux.HandleFunc("DELETE /users/{id}", deleteUser)
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), mux))
}

func newPool(url string) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		log.Fatal(err)
	}
	config.MaxConns = 16 // Each runs one statement at a time.
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

func postToken(w http.ResponseWriter, r *http.Request) {
	var login struct {
		ID string `json:"id"`
		PW string `json:"pw"`
	}
	if !readJSON(w, r, &login) {
		return
	}
	if !isEqual(login.ID, authUser) || !isEqual(login.PW, authPassword) {
		unauthorized(w)
		return
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		ID:   authUser,
		Name: authName,
		RegisteredClaims: jwt.RegisteredClaims{
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(tokenLifetime)),
		},
	}).SignedString(secret)
	if err != nil {
		writeText(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"token": token})
}

func getNotes(w http.ResponseWriter, r *http.Request) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var found claims
	if ok {
		_, err := parser.ParseWithClaims(text, &found, func(*jwt.Token) (any, error) { return secret, nil })
		ok = err == nil && found.ID == authUser && found.Name == authName
	}
	if !ok {
		unauthorized(w)
		return
	}
	writeBytes(w, http.StatusOK, "application/json", note)
}

func listUsers(w http.ResponseWriter, r *http.Request) {
	rows, err := pool.Query(r.Context(), "select id, name, email from users order by id")
	if err != nil {
		fail(w, err)
		return
	}
	users, err := pgx.CollectRows(rows, pgx.RowToStructByPos[user])
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, users)
}

func createUser(w http.ResponseWriter, r *http.Request) {
	change, ok := readChange(w, r, true)
	if !ok {
		return
	}
	created, err := one(r.Context(),
		"insert into users (name, email) values ($1, $2) returning id, name, email",
		change.Name, change.Email)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Location", "/users/"+strconv.FormatInt(created.ID, 10))
	writeJSON(w, http.StatusCreated, created)
}

func getUser(w http.ResponseWriter, r *http.Request) {
	respond(w, r, "select id, name, email from users where id = $1")
}

func patchUser(w http.ResponseWriter, r *http.Request) {
	if change, ok := readChange(w, r, false); ok {
		respond(w, r, `update users set name = coalesce($2, name), email = coalesce($3, email)
			where id = $1 returning id, name, email`, change.Name, change.Email)
	}
}

func deleteUser(w http.ResponseWriter, r *http.Request) {
	respond(w, r, "delete from users where id = $1 returning id, name, email")
}

// respond runs a statement on the user of the path and writes the row that it returns.
func respond(w http.ResponseWriter, r *http.Request, sql string, values ...any) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 32)
	if err != nil || id < 1 {
		fail(w, pgx.ErrNoRows)
		return
	}
	found, err := one(r.Context(), sql, append([]any{id}, values...)...)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

func one(ctx context.Context, sql string, values ...any) (user, error) {
	var found user
	err := pool.QueryRow(ctx, sql, values...).Scan(&found.ID, &found.Name, &found.Email)
	return found, err
}

func readChange(w http.ResponseWriter, r *http.Request, isWhole bool) (change, bool) {
	var read change
	if !readJSON(w, r, &read) {
		return read, false
	}
	hasName := read.Name == nil && !isWhole || read.Name != nil && isName(*read.Name)
	hasEmail := read.Email == nil && !isWhole || read.Email != nil && isEmail(*read.Email)
	if !hasName || !hasEmail {
		writeText(w, http.StatusBadRequest, "name or email is invalid")
		return read, false
	}
	return read, true
}

func isName(text string) bool {
	return text != "" && utf8.RuneCountInString(text) <= 100 && !strings.ContainsRune(text, 0)
}

func isEmail(text string) bool {
	before, after, found := strings.Cut(text, "@")
	return found && before != "" && after != "" && utf8.RuneCountInString(text) <= 100 &&
		!strings.ContainsAny(text, " \t\r\n\x00") && !strings.Contains(after, "@")
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimitBytes)).Decode(into); err != nil {
		writeText(w, http.StatusBadRequest, "Bad Request")
		return false
	}
	return true
}

func isEqual(given, right string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(right))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	writeText(w, http.StatusUnauthorized, "Unauthorized")
}

func fail(w http.ResponseWriter, err error) {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		writeText(w, http.StatusNotFound, "no such user")
	case errors.As(err, &refused) && refused.Code == uniqueViolation:
		writeText(w, http.StatusBadRequest, "email is taken")
	default:
		writeText(w, http.StatusInternalServerError, "Internal Server Error")
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		fail(w, err)
		return
	}
	writeBytes(w, status, "application/json", body)
}

func writeText(w http.ResponseWriter, status int, text string) {
	writeBytes(w, status, "text/plain; charset=utf-8", []byte(text))
}

func writeBytes(w http.ResponseWriter, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}
