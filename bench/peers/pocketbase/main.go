// PocketBase with a collection `people` behind custom routes, as in its manual. Records go through
// its models, validators and hooks. The data directory is the folder of DATABASE_URL.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pocketbase/pocketbase"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	"github.com/pocketbase/pocketbase/tools/router"
)

const collectionName = "people"

type user struct {
	ID    json.Number `json:"id"`
	Name  string      `json:"name"`
	Email string      `json:"email"`
}

type change struct {
	Name  *string `json:"name"`
	Email *string `json:"email"`
}

func main() {
	path := strings.TrimPrefix(os.Getenv("DATABASE_URL"), "sqlite:")
	app := pocketbase.NewWithConfig(pocketbase.Config{
		DefaultDataDir:  filepath.Dir(path),
		HideStartBanner: true,
	})
	app.OnServe().BindFunc(func(event *core.ServeEvent) error {
		if err := ensureCollection(app); err != nil {
			return err
		}
		bind(app, event.Router)
		return event.Next()
	})
	app.RootCmd.SetArgs([]string{"serve", "--http=:" + os.Getenv("PORT")})
	if err := app.Start(); err != nil {
		log.Fatal(err)
	}
}

// ensureCollection creates the collection. Its ids are numbers in text, because PocketBase's ids
// are text.
func ensureCollection(app core.App) error {
	if _, err := app.FindCollectionByNameOrId(collectionName); err == nil {
		return nil
	}
	people := core.NewBaseCollection(collectionName)
	id := people.Fields.GetByName("id").(*core.TextField)
	id.Min, id.Max, id.Pattern, id.AutogeneratePattern = 1, 15, "^[1-9][0-9]*$", "[1-9][0-9]{14}"
	people.Fields.Add(
		&core.TextField{Name: "name", Required: true, Min: 1, Max: 100},
		&core.EmailField{Name: "email", Required: true},
	)
	people.AddIndex("people_email", true, "email", "")
	return app.Save(people)
}

func bind(app core.App, routes *router.Router[*core.RequestEvent]) {
	routes.GET("/", func(e *core.RequestEvent) error {
		return e.String(http.StatusOK, "Hello, World!\n")
	})
	routes.GET("/users", func(e *core.RequestEvent) error {
		records := []*core.Record{}
		if err := app.RecordQuery(collectionName).OrderBy("rowid").All(&records); err != nil {
			return err
		}
		users := make([]user, len(records))
		for i, record := range records {
			users[i] = userOf(record)
		}
		return e.JSON(http.StatusOK, users)
	})
	routes.POST("/users", func(e *core.RequestEvent) error {
		collection, err := app.FindCachedCollectionByNameOrId(collectionName)
		if err != nil {
			return err
		}
		return save(app, e, core.NewRecord(collection), http.StatusCreated, true)
	})
	routes.GET("/users/{id}", func(e *core.RequestEvent) error {
		record, err := find(app, e)
		if err != nil {
			return err
		}
		return e.JSON(http.StatusOK, userOf(record))
	})
	for method, isWhole := range map[string]bool{"PUT": true, "PATCH": false} {
		routes.Route(method, "/users/{id}", func(e *core.RequestEvent) error {
			record, err := find(app, e)
			if err != nil {
				return err
			}
			return save(app, e, record, http.StatusOK, isWhole)
		})
	}
	routes.DELETE("/users/{id}", func(e *core.RequestEvent) error {
		record, err := find(app, e)
		if err != nil {
			return err
		}
		if err := app.Delete(record); err != nil {
			return err
		}
		return e.JSON(http.StatusOK, userOf(record))
	})
}

func find(app core.App, e *core.RequestEvent) (*core.Record, error) {
	id := e.Request.PathValue("id")
	if number, err := strconv.ParseInt(id, 10, 64); err != nil || number < 1 {
		return nil, apis.NewNotFoundError("no such user", nil)
	}
	record, err := app.FindRecordById(collectionName, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, apis.NewNotFoundError("no such user", nil)
	}
	return record, err
}

// save checks the body, sets the fields and saves the record; a taken email is a validation error.
func save(app core.App, e *core.RequestEvent, record *core.Record, status int, isWhole bool) error {
	var body change
	if err := json.NewDecoder(e.Request.Body).Decode(&body); err != nil {
		return apis.NewBadRequestError("Bad Request", nil)
	}
	if isWhole && (body.Name == nil || body.Email == nil) {
		return apis.NewBadRequestError("name and email are needed", nil)
	}
	if body.Name != nil {
		record.Set("name", *body.Name)
	}
	if body.Email != nil {
		record.Set("email", *body.Email)
	}
	if err := app.Save(record); err != nil {
		return apis.NewBadRequestError(err.Error(), nil)
	}
	return e.JSON(status, userOf(record))
}

func userOf(record *core.Record) user {
	return user{json.Number(record.Id), record.GetString("name"), record.GetString("email")}
}
